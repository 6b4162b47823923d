// What works on rows one by one: norms, gates, rotations, rounding, look-ups.
#include "simd.h"

namespace agentmem {
namespace ISA {
namespace {

// 1 / root mean square of a row.
INLINE float inverse_rms(const void* x, int type, int64_t at, int64_t width, float eps) {
  vf a = {}, b = {};
  int64_t i = 0;
  for (; i + 32 <= width; i += 32) {
    const vf u = load_as(x, type, at + i), v = load_as(x, type, at + i + 16);
    a += u * u;
    b += v * v;
  }
  for (; i < width; i += 16) {
    const vf v = load_upto(x, type, at + i, width - i);
    a += v * v;
  }
  return 1.0f / __builtin_sqrtf(sum(a + b) / (float)width + eps);
}

INLINE void store_codes(uint8_t* out, vf v, int64_t n) {
  const vb codes = __builtin_convertvector((vu)to_e4m3(v), vb);
  memcpy(out, &codes, n < 16 ? n : 16);
}

// Adds delta to a row, in `sums` unrounded, in x rounded to its type.
void add_delta(const Norm& a, int64_t at, float* sums) {
  const float* w = a.delta_weight;
  const float r = w ? inverse_rms(a.delta, a.delta_type, at, a.width, a.eps) : 1.0f;
  // two loops: a product fused into the sum would round otherwise than a norm by itself
  for (int64_t i = 0; w && i < a.width; i += 16) {
    const int64_t n = a.width - i;
    store_upto(sums, F32, i, load_upto(a.delta, a.delta_type, at + i, n) * r * load_upto(w, F32, i, n), n);
  }
  for (int64_t i = 0; i < a.width; i += 16) {
    const int64_t n = a.width - i;
    const vf d = w ? load_upto(sums, F32, i, n) : load_upto(a.delta, a.delta_type, at + i, n);
    const vf v = load_upto(a.x, a.x_type, at + i, n) + d;
    store_upto(sums, F32, i, v, n);
    store_upto(a.x, a.x_type, at + i, v, n);
  }
}

void norm_row(const Norm& a, int64_t row, float* sums) {
  const int64_t at = row * a.width;
  const void* x = a.x;
  int type = a.x_type;
  int64_t from = at;
  if (a.delta) {
    add_delta(a, at, sums);
    if (a.out_type == E4M3 && a.round_type == F32) {  // the norm of the unrounded sum
      x = sums;
      type = F32;
      from = 0;
    }
  }
  if (!a.out) return;
  const float inverse = a.scale ? 1.0f / *a.scale : 1.0f;
  const float r = inverse_rms(x, type, from, a.width, a.eps);
  for (int64_t i = 0; i < a.width; i += 16) {
    const int64_t n = a.width - i;
    vf v = load_upto(x, type, from + i, n) * r * load_upto(a.weight, a.weight_type, i, n);
    if (a.out_type == E4M3) {
      if (a.round_type == BF16) v = round_bf16(v);
      store_codes((uint8_t*)a.out + at + i, v * inverse, n);
    } else {
      store_upto(a.out, a.out_type, at + i, v, n);
    }
  }
}

// Sixteen values of a head, turned: neighbouring elements form a pair.
INLINE vf turn(vf v, vf rotation) {
  const vi even = {0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14};
  const vi odd = {1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15};
  const vi swap = {1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14};
  const vf sign = {-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1};
  const vf other = __builtin_shuffle(v, swap) * __builtin_shuffle(rotation, odd) * sign;
  return v * __builtin_shuffle(rotation, even) + other;
}

// One head of a row as floats, normed and turned where it is a query or a key.
void head_of(const Rope& a, int64_t row, int64_t head, float* out) {
  const int64_t d = a.pages.dim, all = a.heads + 2 * a.pages.kv_heads;
  const int64_t at = (row * all + head) * d;
  const bool turned = head < a.heads + a.pages.kv_heads;
  const bool normed = turned && a.qk_norm;
  const float r = normed ? inverse_rms(a.qkv, a.type, at, d, a.eps) : 1.0f;
  for (int64_t i = 0; i < d; i += 16) {
    const int64_t n = d - i;
    vf v = load_upto(a.qkv, a.type, at + i, n);
    if (normed) {
      v = v * r * load_upto(a.qk_norm, F32, head * d + i, n);
      if (a.type == BF16) v = round_bf16(v);
    }
    if (turned) v = turn(v, load_upto(a.rotations, F32, row * d + i, n));
    store_upto(out, F32, i, v, n);
  }
}

void keep(const Rope& a, int64_t row, int64_t head, bool value, const float* v) {
  const Pages& p = a.pages;
  const int64_t block = a.slots[row] / p.block_size, offset = a.slots[row] % p.block_size;
  const int64_t at = (block * p.kv_heads + head) * p.block_size + offset;
  void* to = value ? p.values : p.keys;
  if (p.type != I8) {
    for (int64_t i = 0; i < p.dim; i += 16)
      store_upto(to, p.type, at * p.dim + i, load_upto(v, F32, i, p.dim - i), p.dim - i);
    return;
  }
  vf top = {}, bad = {};
  for (int64_t i = 0; i < p.dim; i += 16) {
    const vf u = load_upto(v, F32, i, p.dim - i);
    top = vmax(vabs(u), top);
    bad += u * 0.0f;
  }
  const float m = largest(top);
  const float scale = m > 0 ? m / 127.0f : 1.0f;
  (value ? p.value_scales : p.key_scales)[at] = scale + sum(bad);  // NaN for a row that is not finite
  for (int64_t i = 0; i < p.dim; i += 16) {
    const vi q = nearest(load_upto(v, F32, i, p.dim - i) / scale);
    const vc bytes = __builtin_convertvector(q, vc);
    memcpy((int8_t*)to + at * p.dim + i, &bytes, p.dim - i < 16 ? p.dim - i : 16);
  }
}

// Sixteen of a row's values.
INLINE vf values_of(const Matrix& w, int64_t row, int64_t col, int64_t n) {
  const int64_t at = row * w.cols + col;
  if (w.type == F32 || w.type == BF16) return load_upto(w.data, w.type, at, n);
  uint8_t t[16] = {};
  const int64_t bytes = n < 16 ? n : 16;
  if (w.type == I4) {
    memcpy(t, (const uint8_t*)w.data + at / 2, (bytes + 1) / 2);
    float v[16];
    for (int i = 0; i < 16; i++) v[i] = (float)((i & 1 ? t[i / 2] >> 4 : t[i / 2] & 15) - 8);
    const int64_t group = row * (w.cols / w.group) + col / w.group;
    return load<vf>(v) * w.scale[group] + (w.offset ? bf16_to_float(w.offset[group]) : 0.0f);
  }
  memcpy(t, (const uint8_t*)w.data + at, bytes);
  if (w.type == E4M3) return from_e4m3(__builtin_convertvector(load<vb>(t), vu)) * w.scale[row];
  return __builtin_convertvector(__builtin_convertvector(load<vc>(t), vi), vf) * w.scale[row];
}

INLINE vf act(vf v, int activation) {
  if (activation == 0) return v / (expv(-v) + 1.0f);
  const vf u = (v * v * v * 0.044715f + v) * -1.5957691216f;  // -2 sqrt(2 / pi)
  return v / (expv(u) + 1.0f);
}

void quantise_row(const Quantise& a, int64_t row) {
  for (int64_t c = 0; c < a.cols; c += 64) {
    const int64_t at = row * a.cols + c, group = (row * a.cols + c) / 64;
    vf v[4], top = {}, bad = {};
    for (int i = 0; i < 4; i++) {
      v[i] = load_as(a.x, a.x_type, at + 16 * i);
      top = vmax(vabs(v[i]), top);
      bad += v[i] * 0.0f;
    }
    const float m = largest(top);
    const float inverse = m > 0 ? 127.0f / m : 0.0f;
    vi total = {};
    for (int i = 0; i < 4; i++) {
      const vi q = nearest(v[i] * inverse);
      total += q;
      store(a.out + at + 16 * i, __builtin_convertvector(q, vc));
    }
    int32_t s = 0;
    for (int i = 0; i < 16; i++) s += total[i];
    a.sum[group] = s;
    a.scale[group] = m / 127.0f + sum(bad);
  }
}

}  // namespace

void norm(const Norm& a, int tid, int threads) {
  int64_t lo, hi;
  share(a.m, 1, tid, threads, &lo, &hi);
  float* sums = (float*)scratch<1>(a.width * 4 + 64);
  for (int64_t r = lo; r < hi; r++) norm_row(a, r, sums);
}

void gate(const Gate& a, int tid, int threads) {
  int64_t lo, hi;
  share(a.m, 1, tid, threads, &lo, &hi);
  for (int64_t r = lo; r < hi; r++)
    for (int64_t i = a.first; i < a.last; i += 16) {
      const int64_t n = a.last - i, at = r * 2 * a.width + i;
      const vf v = act(load_upto(a.x, a.type, at, n), a.activation);
      store_upto(a.out, a.type, r * a.width + i, v * load_upto(a.x, a.type, at + a.width, n), n);
    }
}

void rope(const Rope& a, int tid, int threads) {
  const int64_t kv = a.pages.kv_heads, all = a.heads + 2 * kv, d = a.pages.dim;
  int64_t lo, hi;
  share(a.m * all, 1, tid, threads, &lo, &hi);
  float* v = (float*)scratch<1>(d * 4 + 64);
  for (int64_t unit = lo; unit < hi; unit++) {
    const int64_t row = unit / all, head = unit % all;
    head_of(a, row, head, v);
    if (head < a.heads) {
      for (int64_t i = 0; i < d; i += 16)
        store_upto(a.out, a.type, (row * a.heads + head) * d + i, load_upto(v, F32, i, d - i), d - i);
      continue;
    }
    // what a page keeps went through the activations' type
    if (a.type == BF16)
      for (int64_t i = 0; i < d; i++) v[i] = bf16_to_float(float_to_bf16(v[i]));
    const int64_t h = head - a.heads;
    keep(a, row, h % kv, h >= kv, v);
  }
}

void embed(const Embed& a, int tid, int threads) {
  int64_t lo, hi;
  share(a.m, 1, tid, threads, &lo, &hi);
  for (int64_t r = lo; r < hi; r++)
    for (int64_t c = 0; c < a.w.cols; c += 16) {
      const int64_t n = a.w.cols - c;
      store_upto(a.out, F32, r * a.w.cols + c, values_of(a.w, a.tokens[r], c, n) * a.factor, n);
    }
}

void unpack(const Unpack& a, int tid, int threads) {
  int64_t lo, hi;
  share(a.w.rows, 1, tid, threads, &lo, &hi);
  for (int64_t r = lo; r < hi; r++) {
    int64_t c = 0;
    const uint8_t* codes = (const uint8_t*)a.w.data + r * a.w.cols;
    uint16_t* out = (uint16_t*)a.out + r * a.w.cols;
    const int64_t whole = a.w.cols & ~(int64_t)15;
    if (a.w.type == I8) {
      const vf scale = splat(a.w.scale[r]);
      for (; c < whole; c += 16)
        store(out + c, to_bf16(__builtin_convertvector(__builtin_convertvector(load<vc>(codes + c), vi), vf) * scale));
    } else if (a.w.type == E4M3) {
      const vf scale = splat(a.w.scale[r]);
      for (; c < whole; c += 16)
        store(out + c, to_bf16(from_e4m3(__builtin_convertvector(load<vb>(codes + c), vu)) * scale));
    }
    for (; c < a.w.cols; c += 16) {
      const int64_t n = a.w.cols - c;
      store_upto(a.out, BF16, r * a.w.cols + c, values_of(a.w, r, c, n), n);
    }
  }
}

void quantise(const Quantise& a, int tid, int threads) {
  int64_t lo, hi;
  share(a.m, 1, tid, threads, &lo, &hi);
  for (int64_t r = lo; r < hi; r++) quantise_row(a, r);
}

// The first of the largest; a NaN is the largest of all.
void argmax(const Argmax& a, int tid, int threads) {
  int64_t lo, hi;
  share(a.m, 1, tid, threads, &lo, &hi);
  for (int64_t r = lo; r < hi; r++) {
    const int64_t at = r * a.width;
    vf best = splat(-__builtin_inff());
    vi where = splati(0), here = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int64_t i = 0;
    for (; i + 16 <= a.width; i += 16, here += 16) {
      const vf v = load_as(a.x, a.type, at + i);
      const vi more = (v > best) | ((v != v) & (best == best));
      best = more ? v : best;
      where = more ? here : where;
    }
    float top = best[0];
    int64_t found = where[0];
    auto take = [&](float v, int64_t j) {
      const bool more = v > top || (v != v && top == top);
      if (more || (j < found && (v == top || (v != v && top != top)))) {
        top = v;
        found = j;
      }
    };
    for (int l = 1; l < 16; l++) take(best[l], where[l]);
    for (; i < a.width; i++) take(load_one(a.x, a.type, at + i), i);
    a.out[r] = found;
  }
}

}  // namespace ISA
}  // namespace agentmem
