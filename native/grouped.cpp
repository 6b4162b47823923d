// int8 weights times int8 activations with a scale for each 64 columns, for many rows: a panel of
// weight rows is packed once, then meets four activation rows at a time. Whole numbers within a
// group, then one fused multiply-add a group, in order: the same for every number of rows.
#include "simd.h"

namespace agentmem {
namespace ISA {
namespace {

INLINE void put_grouped(const Grouped& a, int64_t row, int64_t n, vf v) {
  const int64_t left = a.w.rows - n, at = row * a.w.rows + n;
  v *= load_upto(a.w.scale, F32, n, left);
  if (a.bias) v += load_upto(a.bias, a.bias_type, n, left);
  store_upto(a.out, a.out_type, at, v, left);
}

#if AGENTMEM_ZEN4
constexpr int kWide = 3;  // vectors of 16 outputs in a panel
constexpr int64_t kPanel = 16 * kWide;

// [cols / 4][48 rows][4], weight + 128; rows past the end are copies of the last.
void pack_panel(const Grouped& a, int64_t n, uint8_t* panel) {
  const int64_t k = a.w.cols;
  const int8_t* data = (const int8_t*)a.w.data;
  const __m512i flip = _mm512_set1_epi8((char)0x80);
  for (int v = 0; v < kWide; v++)
    for (int64_t c = 0; c < k; c += 64) {
      __m512i r[16];
      for (int l = 0; l < 16; l++) {
        const int64_t row = n + 16 * v + l;
        r[l] = _mm512_xor_si512(flip, _mm512_loadu_si512(data + (row < a.w.rows ? row : a.w.rows - 1) * k + c));
      }
      transpose_dwords(r);
      for (int l = 0; l < 16; l++) _mm512_store_si512(panel + (c / 4 + l) * kPanel * 4 + v * 64, r[l]);
    }
}

template <int R>
void tile_grouped(const Grouped& a, int64_t row, int64_t n, const uint8_t* panel) {
  const int64_t k = a.w.cols, groups = k / 64;
  __m512 acc[R][kWide];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < kWide; v++) acc[r][v] = _mm512_setzero_ps();
  for (int64_t g = 0; g < groups; g++) {
    __m512i whole[R][kWide];
    for (int r = 0; r < R; r++)
      for (int v = 0; v < kWide; v++) whole[r][v] = _mm512_set1_epi32(-128 * a.x_sum[(row + r) * groups + g]);
    const uint8_t* w = panel + g * 16 * kPanel * 4;
    const int8_t* x = a.x + row * k + g * 64;
#pragma GCC unroll 4
    for (int i = 0; i < 16; i++, w += kPanel * 4) {
      __m512i u[kWide];
      for (int v = 0; v < kWide; v++) u[v] = _mm512_load_si512(w + 64 * v);
      for (int r = 0; r < R; r++) {
        int32_t four;
        memcpy(&four, x + r * k + 4 * i, 4);
        const __m512i q = _mm512_set1_epi32(four);
        for (int v = 0; v < kWide; v++) whole[r][v] = _mm512_dpbusd_epi32(whole[r][v], u[v], q);
      }
    }
    for (int r = 0; r < R; r++) {
      const __m512 s = _mm512_set1_ps(a.x_scale[(row + r) * groups + g]);
      for (int v = 0; v < kWide; v++)
        acc[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[r][v]), s, acc[r][v]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < kWide; v++)
      if (n + 16 * v < a.w.rows) put_grouped(a, row + r, n + 16 * v, (vf)acc[r][v]);
}

void slab_grouped(const Grouped& a, int64_t lo, int64_t hi) {
  uint8_t* panel = (uint8_t*)scratch<4>(a.w.cols * kPanel);
  for (int64_t n = lo; n < hi; n += kPanel) {
    pack_panel(a, n, panel);
    int64_t r = 0;
    for (; r + 4 <= a.m; r += 4) tile_grouped<4>(a, r, n, panel);
    if (a.m - r == 3) tile_grouped<3>(a, r, n, panel);
    if (a.m - r == 2) tile_grouped<2>(a, r, n, panel);
    if (a.m - r == 1) tile_grouped<1>(a, r, n, panel);
  }
}
#else
constexpr int64_t kPanel = 16;

void slab_grouped(const Grouped& a, int64_t lo, int64_t hi) {
  const int64_t k = a.w.cols, groups = k / 64;
  for (int64_t n = lo; n < hi; n += 16)
    for (int64_t r = 0; r < a.m; r++) {
      vf acc = {};
      for (int64_t l = 0; l < 16 && n + l < a.w.rows; l++) {
        const int8_t* w = (const int8_t*)a.w.data + (n + l) * k;
        float total = 0;
        for (int64_t g = 0; g < groups; g++) {
          int32_t s = 0;
          for (int64_t i = g * 64; i < g * 64 + 64; i++) s += (int16_t)w[i] * (int16_t)a.x[r * k + i];
          total = __builtin_fmaf((float)s, a.x_scale[r * groups + g], total);
        }
        acc[l] = total;
      }
      put_grouped(a, r, n, acc);
    }
}
#endif

}  // namespace

void grouped(const Grouped& a, int tid, int threads) {
  int64_t lo, hi;
  share(a.w.rows, kPanel, tid, threads, &lo, &hi);
  slab_grouped(a, lo, hi);
}

}  // namespace ISA
}  // namespace agentmem
