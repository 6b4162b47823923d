// Causal attention over pages, for one row or thousands: blocks of 64 keys and chunks of 512, both
// at absolute positions, joined in order. So a row comes out the same whichever rows share its
// pass, and whether a chunk was another thread's.
#include "simd.h"

namespace agentmem {
namespace ISA {
namespace {

constexpr int64_t kKeys = 64, kChunk = 512, kRows = 64;
constexpr float kLow = -1e30f;  // below every score; minus itself it is 0, which -inf is not

// Rows of one sequence that share a key head: `rows` tokens with `per` query heads each.
struct Tile {
  int64_t sequence, row, rows, head, per;
  int64_t position;     // of the first row
  int64_t first, last;  // keys seen by any row: [first, last)
};

// Softmax so far, of each query: the largest score, the sum, and the weighted values.
struct State {
  float *top, *total, *values;
};

INLINE int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

State state_at(float* memory, int64_t queries) { return {memory, memory + queries, memory + 2 * queries}; }

// Calls visit(tile, index) for every tile, in one order for all threads.
template <class Visit>
INLINE void each_tile(const Attend& a, Visit visit) {
  const int64_t per = a.heads / a.pages.kv_heads;
  const int64_t tall = max64(1, kRows / per);
  int64_t index = 0;
  for (int64_t s = 0; s < a.sequences; s++) {
    const int64_t rows = a.starts[s + 1] - a.starts[s];
    for (int64_t r = 0; r < rows; r += tall)
      for (int64_t h = 0; h < a.pages.kv_heads; h++) {
        Tile t = {s, a.starts[s] + r, min64(tall, rows - r), h, per, 0, 0, 0};
        t.position = a.contexts[s] - rows + r;
        t.first = a.window ? max64(0, t.position - a.window + 1) : 0;
        t.last = t.position + t.rows;
        visit(t, index++);
      }
  }
}

// Where keys of a block lie; what is not kept points at zeros.
struct Block {
  const char* key[kKeys];
  const char* value[kKeys];
  float key_scale[kKeys], value_scale[kKeys];
};

void locate(const Attend& a, const Tile& t, int64_t at, const char* zeros, Block* b) {
  const Pages& p = a.pages;
  const int64_t size = p.type == F32 ? 4 : p.type == BF16 ? 2 : 1;
  for (int64_t j = 0; j < kKeys; j++) {
    const int64_t k = at + j;
    b->key[j] = b->value[j] = zeros;
    b->key_scale[j] = b->value_scale[j] = 0;
    if (k < t.first || k >= t.last) continue;
    const int64_t block = a.table[t.sequence * a.table_columns + k / p.block_size];
    const int64_t row = (block * p.kv_heads + t.head) * p.block_size + k % p.block_size;
    b->key[j] = (const char*)p.keys + row * p.dim * size;
    b->value[j] = (const char*)p.values + row * p.dim * size;
    if (p.type != I8) continue;
    b->key_scale[j] = p.key_scales[row];
    b->value_scale[j] = p.value_scales[row];
  }
}

INLINE vf page_values(const char* row, int type, int64_t at, int64_t n) {
  if (type != I8) return load_upto(row, type, at, n);
  int8_t t[16] = {};
  memcpy(t, row + at, n < 16 ? n : 16);
  return __builtin_convertvector(__builtin_convertvector(load<vc>(t), vi), vf);
}

// In floats, on any processor: keys [dim][64], values [64][dim].
struct Plain {
  typedef float Q;
  static constexpr int64_t kStep = 1;  // elements of a query taken at once
  static void pack(const Attend& a, const Block& b, int64_t, float* keys, float* values) {
    const int64_t d = a.pages.dim;
    for (int64_t j = 0; j < kKeys; j++)
      for (int64_t i = 0; i < d; i += 16) {
        const vf k = page_values(b.key[j], a.pages.type, i, d - i);
        for (int64_t l = 0; l < min64(16, d - i); l++) keys[(i + l) * kKeys + j] = k[l];
        store_upto(values, F32, j * d + i, page_values(b.value[j], a.pages.type, i, d - i), d - i);
      }
  }
  static void query(const Attend& a, int64_t at, Q* out) {
    const int64_t d = a.pages.dim;
    for (int64_t i = 0; i < d; i += 16) store_upto(out, F32, i, load_upto(a.q, a.type, at + i, d - i), d - i);
  }
  INLINE vf times(vf sum, const Q* q, int64_t i, const float* keys) {
    return sum + q[i] * load<vf>(keys + i * kKeys);
  }
  INLINE void weights(vf p, int64_t at, Q* out) { store(out + at, p); }
  template <int R>
  static void add_values(const Attend& a, const float* values, const Q* p, int64_t n, const float* decay, float** to) {
    const int64_t d = a.pages.dim;
    for (int64_t i = 0; i < d; i += 16) {
      vf acc[R];
      for (int r = 0; r < R; r++) acc[r] = load_upto(to[r], F32, i, d - i) * decay[r];
      for (int64_t j = 0; j < n; j++) {
        const vf v = load_upto(values, F32, j * d + i, d - i);
        for (int r = 0; r < R; r++) acc[r] += v * p[r * kKeys + j];
      }
      for (int r = 0; r < R; r++) store_upto(to[r], F32, i, acc[r], d - i);
    }
  }
};

#if AGENTMEM_ZEN4
// In bf16, by pairs: keys [dim / 2][64][2], values [32][dim][2].
struct Pairs {
  typedef uint16_t Q;
  static constexpr int64_t kStep = 2;
  INLINE __m512i row(const char* p, int type, int64_t i) {
    if (type == BF16) return _mm512_loadu_si512(p + 2 * i);
    const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)(p + i))));
    const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)(p + i + 16))));
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
  }
  static void pack(const Attend& a, const Block& b, int64_t n, float* keys, float* values) {
    const int64_t d = a.pages.dim;
    const int type = a.pages.type;
    for (int64_t j = 0; j < n; j += 16)
      for (int64_t i = 0; i < d; i += 32) {
        __m512i r[16];
        for (int l = 0; l < 16; l++) r[l] = row(b.key[j + l], type, i);
        transpose_dwords(r);
        for (int l = 0; l < 16; l++) _mm512_store_si512(keys + (i / 2 + l) * kKeys + j, r[l]);
      }
    for (int64_t j = n + 15 & ~(int64_t)15; j < kKeys; j += 16)
      for (int64_t i = 0; i < d / 2; i++) _mm512_store_si512(keys + i * kKeys + j, _mm512_setzero_si512());
    alignas(64) static const uint16_t kLowHalf[32] = {0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39,
                                                      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i first = _mm512_load_si512(kLowHalf);
    const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    for (int64_t j = 0; j < n; j += 2)
      for (int64_t i = 0; i < d; i += 32) {
        const __m512i u = row(b.value[j], type, i), v = row(b.value[j + 1], type, i);
        float* to = values + j / 2 * d + i;
        _mm512_store_si512(to, _mm512_permutex2var_epi16(u, first, v));
        _mm512_store_si512(to + 16, _mm512_permutex2var_epi16(u, second, v));
      }
  }
  static void query(const Attend& a, int64_t at, Q* out) {
    memcpy(out, (const uint16_t*)a.q + at, a.pages.dim * 2);
  }
  INLINE __m512i pair(const Q* p) {
    int32_t both;
    memcpy(&both, p, 4);
    return _mm512_set1_epi32(both);
  }
  INLINE vf times(vf sum, const Q* q, int64_t i, const float* keys) {
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)pair(q + i),
                                (__m512bh)_mm512_load_si512(keys + i / 2 * kKeys));
  }
  INLINE void weights(vf p, int64_t at, Q* out) {
    _mm256_store_si256((__m256i*)(out + at), (__m256i)_mm512_cvtneps_pbh((__m512)p));
  }
  template <int R, int C>
  INLINE void add_columns(const float* values, const Q* p, int64_t pairs, int64_t d, int64_t i, const float* decay, float** to) {
    __m512 acc[R][C];
    for (int r = 0; r < R; r++)
      for (int c = 0; c < C; c++)
        acc[r][c] = _mm512_mul_ps(_mm512_loadu_ps(to[r] + i + 16 * c), _mm512_set1_ps(decay[r]));
    for (int64_t j = 0; j < pairs; j++) {
      __m512bh v[C];
      for (int c = 0; c < C; c++) v[c] = (__m512bh)_mm512_load_si512(values + j * d + i + 16 * c);
      for (int r = 0; r < R; r++) {
        const __m512bh w = (__m512bh)pair(p + r * kKeys + 2 * j);
        for (int c = 0; c < C; c++) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], w, v[c]);
      }
    }
    for (int r = 0; r < R; r++)
      for (int c = 0; c < C; c++) _mm512_storeu_ps(to[r] + i + 16 * c, acc[r][c]);
  }
  template <int R>
  static void add_values(const Attend& a, const float* values, const Q* p, int64_t n, const float* decay, float** to) {
    const int64_t d = a.pages.dim, pairs = (n + 1) / 2;
    int64_t i = 0;
    for (; i + 64 <= d; i += 64) add_columns<R, 4>(values, p, pairs, d, i, decay, to);
    for (; i < d; i += 32) add_columns<R, 2>(values, p, pairs, d, i, decay, to);
  }
};
#endif

// A thread's room: packed keys and values, queries, weights.
template <class Way>
struct Room {
  float *keys, *values;
  typename Way::Q *queries, *weights;
  const char* zeros;
};

template <class Way>
Room<Way> room_for(const Attend& a) {
  const int64_t d = a.pages.dim, queries = kRows + a.heads;
  const int64_t packed = kKeys * d * 4, q = (queries * d * sizeof(typename Way::Q) + 63) & ~(int64_t)63;
  char* m = scratch<2>(2 * packed + q + 4 * kKeys * 4 + d * 4 + 64);
  Room<Way> r = {(float*)m, (float*)(m + packed), (typename Way::Q*)(m + 2 * packed),
                 (typename Way::Q*)(m + 2 * packed + q), m + 2 * packed + q + 4 * kKeys * 4};
  memset((void*)r.zeros, 0, d * 4);
  return r;
}

// R queries, from `at`, meet the n keys from `key`.
template <class Way, int R>
void meet(const Attend& a, const Tile& t, const Room<Way>& m, const Block& b, int64_t key, int64_t n, int64_t at, State s) {
  const int64_t d = a.pages.dim;
  const float scale = a.scale * 1.44269504f;
  vf score[R][4] = {};
  for (int64_t i = 0; i < d; i += Way::kStep)
    for (int r = 0; r < R; r++)
      for (int c = 0; c < 4; c++)
        score[r][c] = Way::times(score[r][c], m.queries + (at + r) * d, i, m.keys + 16 * c);
  const vi lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  float decay[R];
  float* to[R];
  for (int r = 0; r < R; r++) {
    const int64_t position = t.position + (at + r) / t.per;
    const int64_t first = a.window ? max64(0, position - a.window + 1) : 0;
    vf top = splat(s.top[at + r]);
    for (int c = 0; c < 4; c++) {
      vf v = score[r][c] * scale;
      if (a.pages.type == I8) v *= load<vf>(b.key_scale + 16 * c);
      const vi where = lane + (int32_t)(key + 16 * c);
      const vi hidden = (where > (int32_t)position) | (where < (int32_t)first);
      score[r][c] = hidden ? splat(-__builtin_inff()) : v;
      top = vmax(score[r][c], top);
    }
    const float now = largest(top);
    decay[r] = exp2v(splat(s.top[at + r] - now))[0];
    vf total = {};
    for (int c = 0; c < 4; c++) {
      vf p = exp2v(score[r][c] - now);
      total += p;
      if (a.pages.type == I8) p *= load<vf>(b.value_scale + 16 * c);
      Way::weights(p, r * kKeys + 16 * c, m.weights);
    }
    s.total[at + r] = s.total[at + r] * decay[r] + sum(total);
    s.top[at + r] = now;
    to[r] = s.values + (at + r) * d;
  }
  Way::template add_values<R>(a, m.values, m.weights, n, decay, to);
}

// Attention of a tile over the keys of one chunk.
template <class Way>
void attend_chunk(const Attend& a, const Tile& t, const Room<Way>& m, int64_t chunk, State s) {
  const int64_t queries = t.rows * t.per, d = a.pages.dim;
  for (int64_t i = 0; i < queries; i++) s.top[i] = kLow;
  memset(s.total, 0, queries * 4);
  memset(s.values, 0, queries * d * 4);
  const int64_t first = max64(chunk * kChunk, t.first / kKeys * kKeys);
  const int64_t last = min64((chunk + 1) * kChunk, t.last);
  for (int64_t key = first; key < last; key += kKeys) {
    Block b;
    locate(a, t, key, m.zeros, &b);
    const int64_t n = min64(kKeys, last - key);
    Way::pack(a, b, n, m.keys, m.values);
    // a query that sees none of these keys would come out as it went in
    int64_t at = max64(0, key - t.position) * t.per;
#if defined(__AVX512F__)
    for (; at + 4 <= queries; at += 4) meet<Way, 4>(a, t, m, b, key, n, at, s);
    if (queries - at >= 2) meet<Way, 2>(a, t, m, b, key, n, at, s), at += 2;
#endif
    for (; at < queries; at++) meet<Way, 1>(a, t, m, b, key, n, at, s);
  }
}

// Joins a later chunk to what is there.
void join(const State& to, const State& more, int64_t queries, int64_t d) {
  for (int64_t i = 0; i < queries; i++) {
    const float top = to.top[i] > more.top[i] ? to.top[i] : more.top[i];
    const float old = exp2v(splat(to.top[i] - top))[0], fresh = exp2v(splat(more.top[i] - top))[0];
    to.top[i] = top;
    to.total[i] = to.total[i] * old + more.total[i] * fresh;
    for (int64_t c = 0; c < d; c++)
      to.values[i * d + c] = to.values[i * d + c] * old + more.values[i * d + c] * fresh;
  }
}

void finish(const Attend& a, const Tile& t, const State& s) {
  const int64_t d = a.pages.dim;
  for (int64_t q = 0; q < t.rows * t.per; q++) {
    const int64_t row = t.row + q / t.per, head = t.head * t.per + q % t.per;
    const float inverse = 1.0f / s.total[q];
    for (int64_t i = 0; i < d; i += 16)
      store_upto(a.out, a.type, (row * a.heads + head) * d + i,
                 load_upto(s.values, F32, q * d + i, d - i) * inverse, d - i);
  }
}

template <class Way>
void gather(const Attend& a, const Tile& t, const Room<Way>& m) {
  for (int64_t q = 0; q < t.rows * t.per; q++) {
    const int64_t row = t.row + q / t.per, head = t.head * t.per + q % t.per;
    Way::query(a, (row * a.heads + head) * a.pages.dim, m.queries + q * a.pages.dim);
  }
}

INLINE int64_t floats_of(const Attend& a, const Tile& t) { return t.rows * t.per * (a.pages.dim + 2); }
INLINE int64_t chunks_of(const Tile& t) { return (t.last + kChunk - 1) / kChunk - t.first / kChunk; }

template <class Way>
void attend_way(const Attend& a, int tid, int threads) {
  const Room<Way> m = room_for<Way>(a);
  const int64_t size = (kRows + a.heads) * (a.pages.dim + 2);
  float* own = (float*)scratch<3>(2 * size * 4);
  int64_t at = 0, task = 0;
  each_tile(a, [&](const Tile& t, int64_t index) {
    const int64_t queries = t.rows * t.per, start = t.first / kChunk, n = chunks_of(t);
    if (!a.partial) {
      if (index % threads != tid) return;
      gather(a, t, m);
      const State all = state_at(own, queries), one = state_at(own + size, queries);
      for (int64_t c = 0; c < n; c++) {
        attend_chunk(a, t, m, start + c, c ? one : all);
        if (c) join(all, one, queries, a.pages.dim);
      }
      finish(a, t, all);
      return;
    }
    bool gathered = false;
    for (int64_t c = 0; c < n; c++, at += floats_of(a, t)) {
      if (task++ % threads != tid) continue;
      if (!gathered) gather(a, t, m);
      gathered = true;
      attend_chunk(a, t, m, start + c, state_at(a.partial + at, queries));
    }
  });
}

}  // namespace

void attend(const Attend& a, int tid, int threads) {
#if AGENTMEM_ZEN4
  if (a.type == BF16 && a.pages.type != F32 && a.pages.dim % 32 == 0)
    return attend_way<Pairs>(a, tid, threads);
#endif
  attend_way<Plain>(a, tid, threads);
}

// The second half of a pass split over keys; all of `attend` must be done.
void attend_merge(const Attend& a, int tid, int threads) {
  int64_t at = 0;
  each_tile(a, [&](const Tile& t, int64_t index) {
    const int64_t queries = t.rows * t.per;
    const int64_t size = floats_of(a, t), n = chunks_of(t);
    if (index % threads == tid) {
      const State all = state_at(a.partial + at, queries);
      for (int64_t c = 1; c < n; c++) join(all, state_at(a.partial + at + c * size, queries), queries, a.pages.dim);
      finish(a, t, all);
    }
    at += n * size;
  });
}

// Floats to share a pass over keys, or 0 where threads have tiles enough without.
int64_t attend_floats(const Attend& a) {
  int64_t floats = 0, tiles = 0, tasks = 0;
  each_tile(a, [&](const Tile& t, int64_t) {
    floats += floats_of(a, t) * chunks_of(t);
    tiles++;
    tasks += chunks_of(t);
  });
  return tiles < 8 && tasks > tiles ? floats : 0;
}

}  // namespace ISA
}  // namespace agentmem
