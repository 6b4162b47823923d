// Matrix times few (or many) rows. A weight row is read once per block of activations, in order;
// what one output adds up, and in which order, does not depend on the rows beside it.
//
// int8 and int4 weights meet activations of 16 bits a row, split into two signed bytes: the sums
// are whole numbers, so every order gives the same. Up to 16,384 columns this rounds less than
// bf16 activations do.
#include "simd.h"

namespace agentmem {
namespace ISA {
namespace {

#if AGENTMEM_ZEN4
constexpr bool kTall = true;  // two weight rows at once
#else
constexpr bool kTall = false;
#endif
constexpr int64_t kBlock = 64;  // activation rows prepared at once
constexpr float kTop = 32639.0f;  // 127 * 256 + 127

INLINE int64_t sixteens(int64_t n) { return (n + 15) & ~(int64_t)15; }
INLINE int64_t padded(int64_t cols) { return (cols + 127) & ~(int64_t)127; }

// What one call has prepared of its activations.
struct Rows {
  char* data;     // [m][stride] in the order that a format likes
  int64_t stride; // bytes
  float* scale;   // [m]
  int32_t* sum;   // int8: [m][2]: of the high and of the low bytes
  int32_t* offset;  // int4: [m][chunks][16]: -8 * what a lane adds up
  float* group;     // int4 with offsets: [m][groups, to whole sixteens]: sums of the groups
};

// 16 bits a row: q = round(x / scale), value = q * scale; scale NaN where x is not finite.
void to_int16(const Linear& a, int64_t row, int16_t* q, int64_t room, float* scale) {
  const int64_t k = a.w.cols;
  vf top = {}, bad = {};
  for (int64_t i = 0; i < k; i += 16) {
    const vf v = load_upto(a.x, a.x_type, row * k + i, k - i);
    top = vmax(vabs(v), top);
    bad += v * 0.0f;
  }
  const float m = largest(top);
  const vf inverse = splat(m > 0 ? kTop / m : 0.0f), limit = splat(kTop);
  for (int64_t i = 0; i < k; i += 16) {
    // the clamp also keeps a compiler from fusing the product into the rounding
    const vf v = load_upto(a.x, a.x_type, row * k + i, k - i) * inverse;
    store(q + i, __builtin_convertvector(nearest(vmax(vmin(v, limit), -limit)), vh));
  }
  for (int64_t i = (k + 15) & ~(int64_t)15; i < room; i++) q[i] = 0;
  *scale = m / kTop + sum(bad);
}

INLINE void split(int16_t q, int8_t* high, int8_t* low) {
  const int32_t l = (int32_t)((q + 128) & 255) - 128;
  *low = (int8_t)l;
  *high = (int8_t)((q - l) >> 8);
}

void prepare_int8(const Linear& a, int64_t row, int16_t* q, Rows* to, int64_t at) {
  const int64_t room = padded(a.w.cols);
  int8_t* high = (int8_t*)(to->data + at * to->stride);
  int8_t* low = high + room;
  to_int16(a, row, q, room, to->scale + at);
  int32_t h = 0, l = 0;
  for (int64_t i = 0; i < room; i++) {
    split(q[i], high + i, low + i);
    h += high[i];
    l += low[i];
  }
  to->sum[at * 2] = h;
  to->sum[at * 2 + 1] = l;
}

// What the offsets of an int4 matrix are multiplied with: whole numbers, exact as floats.
void sum_groups(const Linear& a, const int16_t* q, float* to) {
  const int64_t groups = a.w.cols / a.w.group, room = sixteens(groups);
  for (int64_t g = 0; g < room; g++) {
    int32_t s = 0;
    for (int64_t i = g * a.w.group; g < groups && i < (g + 1) * a.w.group; i++) s += q[i];
    to[g] = (float)s;
  }
}

// A chunk of 128 columns: 64 even ones, then 64 odd ones, as the nibbles of 64 bytes lie.
void prepare_int4(const Linear& a, int64_t row, int16_t* q, Rows* to, int64_t at) {
  const int64_t room = padded(a.w.cols);
  int8_t* high = (int8_t*)(to->data + at * to->stride);
  int8_t* low = high + room;
  to_int16(a, row, q, room, to->scale + at);
  if (a.w.offset) sum_groups(a, q, to->group + at * sixteens(a.w.cols / a.w.group));
  for (int64_t c = 0; c < room; c += 128) {
    int32_t* offset = to->offset + (at * room + c) / 8;
    for (int lane = 0; lane < 16; lane++) {
      int32_t s = 0;
      for (int i = lane * 8; i < lane * 8 + 8; i++) s += q[c + i];
      offset[lane] = -8 * s;
    }
    for (int i = 0; i < 64; i++) {
      split(q[c + 2 * i], high + c + i, low + c + i);
      split(q[c + 2 * i + 1], high + c + 64 + i, low + c + 64 + i);
    }
  }
}

void prepare_float(const Linear& a, int64_t row, Rows* to, int64_t at) {
  const int64_t k = a.w.cols, room = padded(k);
  float* out = (float*)(to->data + at * to->stride);
  if (a.x_type == E4M3) {
    for (int64_t i = 0; i < k; i += 16) {
      uint8_t t[16] = {};
      memcpy(t, (const uint8_t*)a.x + row * k + i, k - i < 16 ? k - i : 16);
      store(out + i, from_e4m3(__builtin_convertvector(load<vb>(t), vu)));
    }
  } else {
    for (int64_t i = 0; i < k; i += 16)
      store(out + i, load_upto(a.x, a.x_type, row * k + i, k - i));
  }
  for (int64_t i = (k + 15) & ~(int64_t)15; i < room; i++) out[i] = 0;
  to->scale[at] = a.x_scale ? *a.x_scale : 1.0f;
}

#if AGENTMEM_ZEN4
// bf16, in order; or for fp8 as two unpacks of table look-ups leave them: of 64 columns, first the
// lower halves of all sixteens, then the upper ones.
void prepare_bf16(const Linear& a, int64_t row, Rows* to, int64_t at) {
  const int64_t k = a.w.cols, room = padded(k);
  uint16_t* out = (uint16_t*)(to->data + at * to->stride);
  const bool turned = a.w.type == E4M3;
  for (int64_t i = 0; i < room; i += 16) {
    vh v = {};
    if (i < k && a.x_type == E4M3) {
      uint8_t t[16] = {};
      memcpy(t, (const uint8_t*)a.x + row * k + i, k - i < 16 ? k - i : 16);
      v = to_bf16(from_e4m3(__builtin_convertvector(load<vb>(t), vu)));
    } else if (i < k) {
      v = to_bf16(load_upto(a.x, a.x_type, row * k + i, k - i));
    }
    if (!turned) {
      store(out + i, v);
      continue;
    }
    uint16_t* chunk = out + (i & ~(int64_t)63);
    const int64_t lane = (i & 63) / 16;
    memcpy(chunk + lane * 8, &v, 16);
    memcpy(chunk + 32 + lane * 8, (const char*)&v + 16, 16);
  }
  to->scale[at] = a.x_scale ? *a.x_scale : 1.0f;
}

alignas(64) uint8_t kHigh[128], kLow[128];  // bf16 of the 128 positive e4m3 codes, by bytes
const bool kTables = [] {
  for (int c = 0; c < 128; c++) {
    const int e = c >> 3, m = c & 7;
    float v = e ? (8 + m) / 8.0f : m / 8.0f;
    for (int i = e ? e : 1; i < 7; i++) v *= 0.5f;
    for (int i = 7; i < e; i++) v *= 2.0f;
    const uint16_t b = c == 127 ? 0x7fc0 : float_to_bf16(v);
    kHigh[c] = b >> 8;
    kLow[c] = b & 255;
  }
  return true;
}();

INLINE __m512bh bh(__m512i v) { return (__m512bh)v; }
INLINE __m512i part(const void* p, int64_t bytes) {
  if (bytes >= 64) return _mm512_loadu_si512(p);
  return _mm512_maskz_loadu_epi8((((__mmask64)1) << bytes) - 1, p);
}
INLINE void ahead(const char* p) { _mm_prefetch(p + 4096, _MM_HINT_T0); }

// Each tile: R rows of weights with C rows of activations; accumulators fixed per output.
template <int R, int C>
INLINE void tile_bf16(const Linear& a, int64_t n, const Rows& x, int64_t m, float out[R][C]) {
  const int64_t bytes = a.w.cols * 2;
  const char* w = (const char*)a.w.data + n * bytes;
  const char* v = x.data + m * x.stride;
  __m512 even[R][C], odd[R][C];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) even[r][c] = odd[r][c] = _mm512_setzero_ps();
  auto step = [&](int64_t k, auto get) __attribute__((always_inline)) {
    for (int r = 0; r < R; r++) {
      ahead(w + r * bytes + k);
      ahead(w + r * bytes + k + 64);
      const __m512i w0 = get(w + r * bytes + k, k), w1 = get(w + r * bytes + k + 64, k + 64);
      for (int c = 0; c < C; c++) {
        even[r][c] = _mm512_dpbf16_ps(even[r][c], bh(w0), bh(_mm512_load_si512(v + c * x.stride + k)));
        odd[r][c] = _mm512_dpbf16_ps(odd[r][c], bh(w1), bh(_mm512_load_si512(v + c * x.stride + k + 64)));
      }
    }
  };
  int64_t k = 0;
  for (; k + 128 <= bytes; k += 128) step(k, [](const char* p, int64_t) { return _mm512_loadu_si512(p); });
  if (k < bytes)
    step(k, [&](const char* p, int64_t at) { return at < bytes ? part(p, bytes - at) : _mm512_setzero_si512(); });
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) out[r][c] = sum((vf)_mm512_add_ps(even[r][c], odd[r][c]));
}

template <int R, int C>
INLINE void tile_e4m3(const Linear& a, int64_t n, const Rows& x, int64_t m, float out[R][C]) {
  const int64_t bytes = a.w.cols;
  const char* w = (const char*)a.w.data + n * bytes;
  const char* v = x.data + m * x.stride;
  const __m512i h0 = _mm512_load_si512(kHigh), h1 = _mm512_load_si512(kHigh + 64);
  const __m512i l0 = _mm512_load_si512(kLow), l1 = _mm512_load_si512(kLow + 64);
  const __m512i sign = _mm512_set1_epi8((char)0x80);
  __m512 even[R][C], odd[R][C];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) even[r][c] = odd[r][c] = _mm512_setzero_ps();
  for (int64_t k = 0; k < bytes; k += 64)
    for (int r = 0; r < R; r++) {
      ahead(w + r * bytes + k);
      const __m512i code = part(w + r * bytes + k, bytes - k);
      // the look-up takes seven bits; the sign is put back: (table | (code & sign))
      const __m512i high = _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(h0, code, h1), code, sign, 0xf8);
      const __m512i low = _mm512_permutex2var_epi8(l0, code, l1);
      const __m512i w0 = _mm512_unpacklo_epi8(low, high), w1 = _mm512_unpackhi_epi8(low, high);
      for (int c = 0; c < C; c++) {
        even[r][c] = _mm512_dpbf16_ps(even[r][c], bh(w0), bh(_mm512_load_si512(v + c * x.stride + 2 * k)));
        odd[r][c] = _mm512_dpbf16_ps(odd[r][c], bh(w1), bh(_mm512_load_si512(v + c * x.stride + 2 * k + 64)));
      }
    }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++)
      out[r][c] = sum((vf)_mm512_add_ps(even[r][c], odd[r][c])) * a.w.scale[n + r];
}

// Sums of the lanes of two vectors.
INLINE void sums(__m512i a, __m512i b, int32_t* sa, int32_t* sb) {
  const __m512i t = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m256i u = _mm256_add_epi32(_mm512_castsi512_si256(t), _mm512_extracti64x4_epi64(t, 1));
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1));
  s = _mm_add_epi32(s, _mm_unpackhi_epi64(s, s));
  const uint64_t both = (uint64_t)_mm_cvtsi128_si64(s);
  *sa = (int32_t)both;
  *sb = (int32_t)(both >> 32);
}

template <int R, int C>
INLINE void tile_int8(const Linear& a, int64_t n, const Rows& x, int64_t m, float out[R][C]) {
  const int64_t bytes = a.w.cols, low = padded(a.w.cols);
  const char* w = (const char*)a.w.data + n * bytes;
  const char* v = x.data + m * x.stride;
  const __m512i flip = _mm512_set1_epi8((char)0x80);  // w + 128 is unsigned
  __m512i hi[R][C], lo[R][C];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) hi[r][c] = lo[r][c] = _mm512_setzero_si512();
  for (int64_t k = 0; k < bytes; k += 64)
    for (int r = 0; r < R; r++) {
      ahead(w + r * bytes + k);
      const __m512i u = _mm512_xor_si512(part(w + r * bytes + k, bytes - k), flip);
      for (int c = 0; c < C; c++) {
        hi[r][c] = _mm512_dpbusd_epi32(hi[r][c], u, _mm512_load_si512(v + c * x.stride + k));
        lo[r][c] = _mm512_dpbusd_epi32(lo[r][c], u, _mm512_load_si512(v + c * x.stride + low + k));
      }
    }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) {
      int32_t h, l;
      sums(hi[r][c], lo[r][c], &h, &l);
      h -= 128 * x.sum[2 * (m + c)];
      l -= 128 * x.sum[2 * (m + c) + 1];
      out[r][c] = __builtin_fmaf((float)h, 256.0f, (float)l) * a.w.scale[n + r];
    }
}

template <int R, int C>
INLINE void tile_int4(const Linear& a, int64_t n, const Rows& x, int64_t m, float out[R][C]) {
  const int64_t bytes = a.w.cols / 2, room = padded(a.w.cols);
  const int64_t groups = a.w.cols / a.w.group;
  const int shift = a.w.group == 32 ? 2 : a.w.group == 64 ? 3 : 4;  // lanes of a group
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i which = _mm512_srli_epi32(lane, shift);
  const int per = 16 >> shift;
  const char* w = (const char*)a.w.data + n * bytes;
  const char* v = x.data + m * x.stride;
  const __m512i nibble = _mm512_set1_epi8(15), none = _mm512_setzero_si512();
  __m512 acc[R][C];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) acc[r][c] = _mm512_setzero_ps();
  int64_t g = 0;
  for (int64_t k = 0; k < bytes; k += 64, g += per)
    for (int r = 0; r < R; r++) {
      ahead(w + r * bytes + k);
      const __m512i code = part(w + r * bytes + k, bytes - k);
      const __m512i even = _mm512_and_si512(code, nibble);
      const __m512i odd = _mm512_and_si512(_mm512_srli_epi16(code, 4), nibble);
      const int64_t left = groups - g;
      const __mmask16 some = left >= per ? (1 << per) - 1 : (1 << left) - 1;
      const __m512 s = _mm512_permutexvar_ps(which, _mm512_maskz_loadu_ps(some, a.w.scale + (n + r) * groups + g));
      for (int c = 0; c < C; c++) {
        const char* q = v + c * x.stride + 2 * k;
        __m512i h = _mm512_dpbusd_epi32(none, even, _mm512_load_si512(q));
        h = _mm512_dpbusd_epi32(h, odd, _mm512_load_si512(q + 64));
        const int32_t* offset = x.offset + ((m + c) * room + 2 * k) / 8;
        __m512i l = _mm512_dpbusd_epi32(_mm512_load_si512(offset), even, _mm512_load_si512(q + room));
        l = _mm512_dpbusd_epi32(l, odd, _mm512_load_si512(q + room + 64));
        const __m512i both = _mm512_add_epi32(_mm512_slli_epi32(h, 8), l);
        acc[r][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(both), s, acc[r][c]);
      }
    }
  for (g = 0; a.w.offset && g < groups; g += 16)
    for (int r = 0; r < R; r++) {
      const __mmask16 some = groups - g >= 16 ? 0xffff : (1 << (groups - g)) - 1;
      const __m256i o = _mm256_maskz_loadu_epi16(some, a.w.offset + (n + r) * groups + g);
      const __m512 wide = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(o), 16));
      for (int c = 0; c < C; c++)
        acc[r][c] = _mm512_fmadd_ps(wide, _mm512_loadu_ps(x.group + (m + c) * sixteens(groups) + g), acc[r][c]);
    }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) out[r][c] = sum((vf)acc[r][c]);
}
#else
template <int R, int C>
INLINE void tile_bf16(const Linear& a, int64_t n, const Rows& x, int64_t m, float out[R][C]) {
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) {
      const uint16_t* w = (const uint16_t*)a.w.data + (n + r) * a.w.cols;
      const float* v = (const float*)(x.data + (m + c) * x.stride);
      vf even = {}, odd = {};
      int64_t k = 0;
      for (; k + 32 <= a.w.cols; k += 32) {
        even += from_bf16(load<vh>(w + k)) * load<vf>(v + k);
        odd += from_bf16(load<vh>(w + k + 16)) * load<vf>(v + k + 16);
      }
      for (; k < a.w.cols; k += 16) even += load_upto(w, BF16, k, a.w.cols - k) * load<vf>(v + k);
      out[r][c] = sum(even + odd);
    }
}
template <int R, int C>
INLINE void tile_e4m3(const Linear& a, int64_t n, const Rows& x, int64_t m, float out[R][C]) {
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) {
      const uint8_t* w = (const uint8_t*)a.w.data + (n + r) * a.w.cols;
      const float* v = (const float*)(x.data + (m + c) * x.stride);
      vf acc = {};
      for (int64_t k = 0; k < a.w.cols; k += 16) {
        uint8_t t[16] = {};
        memcpy(t, w + k, a.w.cols - k < 16 ? a.w.cols - k : 16);
        acc += from_e4m3(__builtin_convertvector(load<vb>(t), vu)) * load<vf>(v + k);
      }
      out[r][c] = sum(acc) * a.w.scale[n + r];
    }
}
INLINE int32_t dot(const int8_t* a, const int8_t* b, int64_t n) {
  int32_t s = 0;
  for (int64_t i = 0; i < n; i++) s += (int16_t)a[i] * (int16_t)b[i];
  return s;
}
template <int R, int C>
INLINE void tile_int8(const Linear& a, int64_t n, const Rows& x, int64_t m, float out[R][C]) {
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) {
      const int8_t* w = (const int8_t*)a.w.data + (n + r) * a.w.cols;
      const int8_t* v = (const int8_t*)(x.data + (m + c) * x.stride);
      const int32_t h = dot(w, v, a.w.cols), l = dot(w, v + padded(a.w.cols), a.w.cols);
      // as one rounding, like the instruction the other builds have
      out[r][c] = (float)((double)(float)h * 256.0 + (double)(float)l) * a.w.scale[n + r];
    }
}
template <int R, int C>
INLINE void tile_int4(const Linear& a, int64_t n, const Rows& x, int64_t m, float out[R][C]) {
  const int64_t room = padded(a.w.cols), groups = a.w.cols / a.w.group;
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) {
      const uint8_t* w = (const uint8_t*)a.w.data + (n + r) * a.w.cols / 2;
      const int8_t* v = (const int8_t*)(x.data + (m + c) * x.stride);
      float acc = 0;
      for (int64_t g = 0; g < groups; g++) {
        int32_t h = 0, l = 0;
        for (int64_t j = g * a.w.group / 2; j < (g + 1) * a.w.group / 2; j++) {
          const int64_t at = j / 64 * 128 + j % 64;
          const int32_t even = (w[j] & 15) - 8, odd = (w[j] >> 4) - 8;
          h += even * v[at] + odd * v[at + 64];
          l += even * v[room + at] + odd * v[room + at + 64];
        }
        acc += (float)(h * 256 + l) * a.w.scale[(n + r) * groups + g];
        if (a.w.offset)
          acc += x.group[(m + c) * sixteens(groups) + g] * bf16_to_float(a.w.offset[(n + r) * groups + g]);
      }
      out[r][c] = acc;
    }
}
#endif

template <int R, int C>
INLINE void tile_fp32(const Linear& a, int64_t n, const Rows& x, int64_t m, float out[R][C]) {
  const int64_t whole = a.w.cols & ~(int64_t)15;
  vf acc[R][C] = {};
  for (int64_t k = 0; k < whole; k += 16)
    for (int r = 0; r < R; r++) {
      const vf w = load<vf>((const float*)a.w.data + (n + r) * a.w.cols + k);
      for (int c = 0; c < C; c++)
        acc[r][c] += w * load<vf>((const float*)(x.data + (m + c) * x.stride) + k);
    }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) {
      if (whole < a.w.cols)
        acc[r][c] += load_part(a.w.data, F32, (n + r) * a.w.cols + whole, a.w.cols - whole) *
                     load<vf>((const float*)(x.data + (m + c) * x.stride) + whole);
      out[r][c] = sum(acc[r][c]);
    }
}

template <int R, int C>
INLINE void put(const Linear& a, int64_t n, const Rows& x, int64_t first, int64_t m, const float y[R][C]) {
  for (int r = 0; r < R; r++) {
    const float bias = a.bias ? load_one(a.bias, a.bias_type, n + r) : 0.0f;
    for (int c = 0; c < C; c++)
      store_one(a.out, a.out_type, (first + m + c) * a.w.rows + n + r, y[r][c] * x.scale[m + c] + bias);
  }
}

// Without the tiles' instructions a wider one only costs time to compile.
#if AGENTMEM_ZEN4
#define AGENTMEM_WIDE(call)                                                   \
  for (; c + 4 <= m; c += 4) call<R, 4>(a, n, x, f, c);                       \
  if (m - c == 3) call<R, 3>(a, n, x, f, c), c += 3;                          \
  if (m - c == 2) call<R, 2>(a, n, x, f, c), c += 2;
#else
#define AGENTMEM_WIDE(call)
#endif
#define AGENTMEM_TILES(format)                                                              \
  template <int R, int C>                                                                   \
  INLINE void one_##format(const Linear& a, int64_t n, const Rows& x, int64_t f, int64_t m) { \
    float y[R][C];                                                                          \
    tile_##format<R, C>(a, n, x, m, y);                                                     \
    put<R, C>(a, n, x, f, m, y);                                                            \
  }                                                                                         \
  template <int R>                                                                          \
  INLINE void row_##format(const Linear& a, int64_t n, const Rows& x, int64_t f, int64_t m) { \
    int64_t c = 0;                                                                          \
    AGENTMEM_WIDE(one_##format)                                                             \
    for (; c < m; c++) one_##format<R, 1>(a, n, x, f, c);                                   \
  }                                                                                         \
  static void slab_##format(const Linear& a, int64_t lo, int64_t hi, const Rows& x, int64_t f, int64_t m) { \
    int64_t n = lo;                                                                         \
    if constexpr (kTall) if (m >= 4)                                                                    \
      for (; n + 2 <= hi; n += 2) row_##format<2>(a, n, x, f, m);                           \
    for (; n < hi; n++) row_##format<1>(a, n, x, f, m);                                     \
  }
AGENTMEM_TILES(fp32)
AGENTMEM_TILES(bf16)
AGENTMEM_TILES(e4m3)
AGENTMEM_TILES(int8)
AGENTMEM_TILES(int4)

size_t stride_of(const Linear& a) {
  const int64_t room = padded(a.w.cols);
  if (a.w.type == I8 || a.w.type == I4) return room * 2;
#if AGENTMEM_ZEN4
  if (a.w.type == BF16 || a.w.type == E4M3) return room * 2;
#endif
  return room * 4;
}

}  // namespace

void linear(const Linear& a, int tid, int threads) {
  int64_t lo, hi;
  share(a.w.rows, 2, tid, threads, &lo, &hi);
  const int64_t room = padded(a.w.cols), block = a.m < kBlock ? a.m : kBlock;
  const size_t stride = stride_of(a), data = block * stride, sums = block * 64;
  const size_t offsets = a.w.type == I4 ? block * room / 2 : 0;
  const size_t groups = a.w.offset ? block * sixteens(a.w.cols / a.w.group) * 4 : 0;
  char* memory = scratch<0>(data + offsets + 2 * sums + groups + room * 2);
  Rows x = {memory, (int64_t)stride, (float*)(memory + data + offsets),
            (int32_t*)(memory + data + offsets + sums), (int32_t*)(memory + data),
            (float*)(memory + data + offsets + 2 * sums)};
  int16_t* q = (int16_t*)(memory + data + offsets + 2 * sums + groups);
  for (int64_t first = 0; first < a.m && lo < hi; first += block) {
    const int64_t m = a.m - first < block ? a.m - first : block;
    for (int64_t i = 0; i < m; i++) {
      if (a.w.type == I8)
        prepare_int8(a, first + i, q, &x, i);
      else if (a.w.type == I4)
        prepare_int4(a, first + i, q, &x, i);
#if AGENTMEM_ZEN4
      else if (a.w.type != F32)
        prepare_bf16(a, first + i, &x, i);
#endif
      else
        prepare_float(a, first + i, &x, i);
    }
    switch (a.w.type) {
      case F32: slab_fp32(a, lo, hi, x, first, m); break;
      case BF16: slab_bf16(a, lo, hi, x, first, m); break;
      case E4M3: slab_e4m3(a, lo, hi, x, first, m); break;
      case I8: slab_int8(a, lo, hi, x, first, m); break;
      case I4: slab_int4(a, lo, hi, x, first, m); break;
    }
  }
}

}  // namespace ISA
}  // namespace agentmem
