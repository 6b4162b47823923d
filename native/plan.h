// All layers of a decoder over few rows in one call: one team of threads, barriers in between.
// The same kernels in the same order as layer by layer, so the same results, bit for bit.
#pragma once
#include <cstdint>
#include <vector>

#include "ops.h"

namespace agentmem {

struct Factor {  // a matrix, its bias, and what its input is quantised by (or null)
  Matrix w;
  const void* bias;
  int bias_type;
  const float* input_scale;
};

struct Layer {
  const void *attn_norm, *ffn_norm;
  int attn_norm_type, ffn_norm_type;
  const float *qk_norm, *post_attn, *post_ffn;
  Factor qkv, out, gate_up, down;
  int group;
  int64_t page_layer, window;
  bool local;
};

struct Shape {
  int64_t width, ffn, heads, kv_heads, dim;
  float eps, scale;
  int activation, dtype, residual;
  bool round_first;
};

// Where a group keeps its state in this pass.
struct Place {
  int type;
  char *data, *scales;
  int64_t blocks, block_size;
  const int64_t* slots;
  const int32_t* table;
  int64_t table_columns;
};

struct Pass {
  void* x;
  int64_t rows, sequences;
  const float *far, *near;
  const int32_t *starts, *contexts;
  std::vector<Place> places;
  void* out;
};

struct Plan {
  Shape shape;
  std::vector<Layer> layers;
  const void* norm;
  int norm_type;
  std::vector<char> room;

  void run(const Ops& ops, const Pass& pass, int threads);
};

}  // namespace agentmem
