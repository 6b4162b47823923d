// Sixteen floats as one value on any instruction set, and what is missing in the compiler's own
// vectors. Everything is static: a TU compiled for a newer CPU must not lend code to an older one.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "ops.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__AVX512BF16__) && defined(__AVX512VBMI__) && defined(__AVX512VNNI__)
#define AGENTMEM_ZEN4 1
#endif

namespace agentmem {
namespace {

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint32_t vu __attribute__((vector_size(64)));
typedef uint16_t vh __attribute__((vector_size(32)));
typedef uint8_t vb __attribute__((vector_size(16)));
typedef int8_t vc __attribute__((vector_size(16)));

#define INLINE static inline __attribute__((always_inline))

template <class V, class P>
INLINE V load(const P* p) {
  V v;
  memcpy(&v, p, sizeof v);
  return v;
}
template <class V, class P>
INLINE void store(P* p, V v) {
  memcpy(p, &v, sizeof v);
}

INLINE vf splat(float x) { return x - vf{}; }
INLINE vi splati(int32_t x) { return x - vi{}; }

INLINE float bf16_to_float(uint16_t b) {
  const uint32_t u = (uint32_t)b << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
INLINE uint16_t float_to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if (f != f) return 0x7fc0;
  return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

INLINE vf from_bf16(vh h) { return (vf)(__builtin_convertvector(h, vu) << 16); }
INLINE vh to_bf16(vf v) {
  const vu u = (vu)v;
  const vu r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return __builtin_convertvector((vu)((v == v) ? (vi)r : splati(0x7fc0)), vh);
}
INLINE vf round_bf16(vf v) { return from_bf16(to_bf16(v)); }

// Sixteen elements at p, of type F32 or BF16, as floats; `n` of them where fewer are left.
INLINE vf load_as(const void* p, int type, int64_t at) {
  if (type == F32) return load<vf>((const float*)p + at);
  return from_bf16(load<vh>((const uint16_t*)p + at));
}
INLINE vf load_part(const void* p, int type, int64_t at, int64_t n) {
  float t[16] = {};
  for (int64_t i = 0; i < n; i++)
    t[i] = type == F32 ? ((const float*)p)[at + i] : bf16_to_float(((const uint16_t*)p)[at + i]);
  return load<vf>(t);
}
INLINE vf load_upto(const void* p, int type, int64_t at, int64_t n) {
  return n >= 16 ? load_as(p, type, at) : load_part(p, type, at, n);
}
INLINE void store_as(void* p, int type, int64_t at, vf v) {
  if (type == F32)
    store((float*)p + at, v);
  else
    store((uint16_t*)p + at, to_bf16(v));
}
INLINE void store_upto(void* p, int type, int64_t at, vf v, int64_t n) {
  if (n >= 16) return store_as(p, type, at, v);
  for (int64_t i = 0; i < n; i++) {
    if (type == F32)
      ((float*)p)[at + i] = v[i];
    else
      ((uint16_t*)p)[at + i] = float_to_bf16(v[i]);
  }
}
INLINE void store_one(void* p, int type, int64_t at, float v) {
  if (type == F32)
    ((float*)p)[at] = v;
  else
    ((uint16_t*)p)[at] = float_to_bf16(v);
}
INLINE float load_one(const void* p, int type, int64_t at) {
  return type == F32 ? ((const float*)p)[at] : bf16_to_float(((const uint16_t*)p)[at]);
}

// One order of additions for every caller: halves, quarters, pairs.
INLINE float sum(vf v) {
#if defined(__AVX512F__)
  const __m512 a = (__m512)v;
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a),
                                 _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)));
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
#else
  float a[8], b[4];
  for (int i = 0; i < 8; i++) a[i] = v[i] + v[i + 8];
  for (int i = 0; i < 4; i++) b[i] = a[i] + a[i + 4];
  return (b[0] + b[2]) + (b[1] + b[3]);
#endif
}
INLINE float largest(vf v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)v);
#else
  float m = v[0];
  for (int i = 1; i < 16; i++) m = v[i] > m ? v[i] : m;
  return m;
#endif
}
INLINE vf vmax(vf a, vf b) { return a > b ? a : b; }
INLINE vf vmin(vf a, vf b) { return a < b ? a : b; }
INLINE vf vabs(vf v) { return (vf)((vi)v & 0x7fffffff); }

// Nearest integer, ties to even, of |v| < 2^22.
INLINE vi nearest(vf v) {
  const vf magic = splat(12582912.0f);
  return (vi)(v + magic) - (vi)magic;
}

// 2^v; 0 below -126, no more than 2^126; NaN stays.
INLINE vf exp2v(vf v) {
  const vf low = splat(-126.0f);
  const vf x = vmin(vmax(v, low), splat(126.0f));
  const vi n = nearest(x);
  const vf f = x - __builtin_convertvector(n, vf);
  vf p = splat(1.5403530e-4f);
  p = p * f + 1.3333558e-3f;
  p = p * f + 9.6181291e-3f;
  p = p * f + 5.5504109e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.0f;
  const vf r = (vf)((vi)p + (n << 23));
  return v < low ? vf{} : (v == v ? r : v);
}
INLINE vf expv(vf v) {
  const vf r = exp2v(v * 1.44269504f);
  return v > 87.0f ? splat(__builtin_inff()) : r;
}

// e4m3 of a value, to nearest even, saturating at 448; NaN is 0x7f.
INLINE vi to_e4m3(vf v) {
  const vf a = vmin(vabs(v), splat(448.0f));
  const vi u = (vi)a;
  const vi normal = ((u + 0x7ffff + ((u >> 20) & 1)) >> 20) - (120 << 3);
  const vi small = nearest(a * 512.0f);
  const vi code = (a < 0.015625f) ? small : normal;
  const vi sign = (vi)((vu)v >> 24) & 0x80;
  return (v == v) ? (code | sign) : splati(0x7f);
}
INLINE vf from_e4m3(vu code) {
  const vf v = (vf)(((code & 0x7f) << 20) | ((code & 0x80) << 24)) * 0x1p120f;
  const vi nan = (vi)((code & 0x7f) == 0x7f);
  return nan ? splat(__builtin_nanf("")) : v;
}

// A thread's own memory, kept between calls, aligned to 64.
template <int Which>
static char* scratch(size_t bytes) {
  static thread_local char* memory = nullptr;
  static thread_local size_t size = 0;
  if (bytes > size) {
    __builtin_free(memory);
    size = (bytes + 4095) & ~(size_t)4095;
    memory = (char*)aligned_alloc(64, size);
    if (!memory) __builtin_trap();
  }
  return memory;
}

INLINE void share(int64_t n, int64_t step, int tid, int threads, int64_t* lo, int64_t* hi) {
  const int64_t units = (n + step - 1) / step;
  *lo = units * tid / threads * step;
  *hi = units * (tid + 1) / threads * step;
  if (*hi > n) *hi = n;
}

#if AGENTMEM_ZEN4
// 16 rows of 16 dwords, in place
INLINE void transpose_dwords(__m512i* r) {
  __m512i t[16];
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; i++) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}
#endif

}  // namespace
}  // namespace agentmem
