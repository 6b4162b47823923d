// What a kernel takes, and the table of kernels that each instruction set offers.
//
// Every kernel is a part: `tid` of `threads` workers call it with the same arguments and each does
// its own share. Memory is row-major and contiguous; sizes are checked by the caller.
#pragma once
#include <cstdint>

namespace agentmem {

enum Type : int { F32 = 0, BF16 = 1, E4M3 = 2, I8 = 3, I4 = 4 };

// A matrix [rows, cols]; value = data * scale + offset. I8, E4M3: a scale a row. I4: a scale and,
// where there are any, an offset (bf16) a group.
struct Matrix {
  int type;
  const void* data;
  const float* scale;
  int64_t rows, cols, group;
  const uint16_t* offset;
};

// out [m, rows] = (x [m, cols] * x_scale) times the matrix, plus bias [rows].
struct Linear {
  Matrix w;
  const void* x;
  int x_type;
  const float* x_scale;  // one, or null for 1
  int64_t m;
  const void* bias;
  int bias_type;
  void* out;
  int out_type;
};

// As Linear with int8 weights, activations in groups of 64; `x` is what `quantise` has written.
struct Grouped {
  Matrix w;
  const int8_t* x;       // [m, cols]
  const float* x_scale;  // [m, cols / 64]
  const int32_t* x_sum;  // [m, cols / 64]
  int64_t m;
  const void* bias;
  int bias_type;
  void* out;
  int out_type;
};

struct Quantise {
  const void* x;
  int x_type;
  int64_t m, cols;
  int8_t* out;
  float* scale;
  int32_t* sum;
};

// RMS norm of x [m, width], after x += delta where there is one. E4M3 output is
// value / scale, rounded to `round_type` (F32: not at all) before it is quantised.
struct Norm {
  void* x;
  int x_type;
  const void* delta;
  int delta_type;
  const float* delta_weight;  // delta is normed by this weight first (post-norms), or null
  const void* weight;
  int weight_type;
  float eps;
  int64_t m, width;
  void* out;
  int out_type;
  int round_type;
  const float* scale;  // one, of e4m3 output
};

// act(first half) * second half of x [m, 2 * width], columns [first, last) only.
struct Gate {
  const void* x;
  int type;
  int64_t m, width, first, last;
  int activation;  // 0 silu, 1 gelu (tanh)
  void* out;
};

// Keys and values of one layer: [blocks, kv_heads, block_size, dim], scales without dim.
struct Pages {
  int type;
  void* keys;
  void* values;
  float* key_scales;
  float* value_scales;
  int64_t block_size, kv_heads, dim;
};

struct Rope {
  const void* qkv;  // [m, heads + 2 * kv_heads, dim]
  int type;
  const float* rotations;  // [m, dim / 2, 2]
  const int64_t* slots;    // [m]
  Pages pages;
  int64_t m, heads;
  const float* qk_norm;  // [heads + kv_heads, dim] or null
  float eps;
  void* out;  // [m, heads, dim]
};

struct Attend {
  const void* q;  // [n, heads, dim]
  int type;
  Pages pages;
  int64_t heads, sequences, table_columns;
  const int32_t* starts;
  const int32_t* contexts;
  const int32_t* table;
  float scale;
  int64_t window;  // 0: none
  void* out;       // [n, heads * dim]
  float* partial;  // room for what `attend_units` says, or null: no split over keys
};

struct Embed {
  const int64_t* tokens;
  Matrix w;
  int64_t m;
  float factor;
  float* out;
};

// The matrix itself in bf16, scales and all.
struct Unpack {
  Matrix w;
  void* out;
};

struct Argmax {
  const void* x;  // [m, width]
  int type;
  int64_t m, width;
  int64_t* out;
};

#define AGENTMEM_KERNELS(X)                                                                    \
  X(linear, Linear) X(quantise, Quantise) X(grouped, Grouped) X(norm, Norm) X(gate, Gate)       \
  X(rope, Rope) X(attend, Attend) X(attend_merge, Attend) X(embed, Embed) X(argmax, Argmax)           \
  X(unpack, Unpack)

struct Ops {
  const char* name;
#define AGENTMEM_MEMBER(op, args) void (*op)(const args&, int tid, int threads);
  AGENTMEM_KERNELS(AGENTMEM_MEMBER)
#undef AGENTMEM_MEMBER
  int64_t (*attend_floats)(const Attend&);
};

}  // namespace agentmem

#define AGENTMEM_DECLARE(op, args) void op(const args&, int tid, int threads);
