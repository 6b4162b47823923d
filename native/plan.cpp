#include "plan.h"

#ifdef _OPENMP
#include <omp.h>
#define AGENTMEM_BARRIER _Pragma("omp barrier")
#else
#define AGENTMEM_BARRIER
#endif

namespace agentmem {
namespace {

// Rows between two steps.
struct Rooms {
  char *h, *qkv, *q, *sums, *delta, *gate_up, *opened;
  float* partial;
};

int64_t aligned(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

struct Runner {
  const Plan& plan;
  const Ops& ops;
  const Pass& pass;
  const Rooms& room;
  int tid, threads;

  Linear product(const Factor& f, const void* x, bool quantised, void* out) const {
    const int dtype = plan.shape.dtype;
    return {f.w, x, quantised ? E4M3 : dtype, quantised ? f.input_scale : nullptr, pass.rows,
            f.bias, f.bias_type, out, dtype};
  }

  Norm normed(const void* weight, int weight_type, const void* delta, const float* delta_weight,
              const float* scale, void* out) const {
    const Shape& s = plan.shape;
    const int rounded = s.round_first ? s.residual : F32;
    return {pass.x, s.residual, delta, s.dtype, delta_weight, weight, weight_type, s.eps, pass.rows,
            s.width, out, scale ? E4M3 : s.dtype, rounded, scale};
  }

  Pages pages(const Layer& l) const {
    const Shape& s = plan.shape;
    const Place& p = pass.places[l.group];
    const int64_t rows = p.blocks * s.kv_heads * p.block_size;
    const int64_t bytes = rows * s.dim * (p.type == F32 ? 4 : p.type == BF16 ? 2 : 1);
    char* keys = p.data + l.page_layer * 2 * bytes;
    float* scales = p.scales ? (float*)p.scales + l.page_layer * 2 * rows : nullptr;
    return {p.type, keys, keys + bytes, scales, scales ? scales + rows : nullptr, p.block_size,
            s.kv_heads, s.dim};
  }

  void attention(const Layer& l) const {
    const Shape& s = plan.shape;
    const Place& p = pass.places[l.group];
    const Rope turn = {room.qkv, s.dtype, l.local ? pass.near : pass.far, p.slots, pages(l),
                       pass.rows, s.heads, l.qk_norm, s.eps, room.q};
    ops.rope(turn, tid, threads);
    AGENTMEM_BARRIER
    Attend look = {room.q, s.dtype, pages(l), s.heads, pass.sequences, p.table_columns, pass.starts,
                   pass.contexts, p.table, s.scale, l.window, room.sums, nullptr};
    const bool split = threads > 1 && ops.attend_floats(look);
    if (split) look.partial = room.partial;
    ops.attend(look, tid, threads);
    AGENTMEM_BARRIER
    if (!split) return;
    ops.attend_merge(look, tid, threads);
    AGENTMEM_BARRIER
  }

  void layer(const Layer& l, const void* delta, const float* delta_weight) const {
    const Shape& s = plan.shape;
    ops.norm(normed(l.attn_norm, l.attn_norm_type, delta, delta_weight, l.qkv.input_scale, room.h),
             tid, threads);
    AGENTMEM_BARRIER
    ops.linear(product(l.qkv, room.h, l.qkv.input_scale, room.qkv), tid, threads);
    AGENTMEM_BARRIER
    attention(l);
    ops.linear(product(l.out, room.sums, false, room.delta), tid, threads);
    AGENTMEM_BARRIER
    ops.norm(normed(l.ffn_norm, l.ffn_norm_type, room.delta, l.post_attn, l.gate_up.input_scale, room.h),
             tid, threads);
    AGENTMEM_BARRIER
    ops.linear(product(l.gate_up, room.h, l.gate_up.input_scale, room.gate_up), tid, threads);
    AGENTMEM_BARRIER
    // cut by columns: there may be one row only
    const int64_t units = (s.ffn + 15) / 16, last = units * (tid + 1) / threads * 16;
    const Gate open = {room.gate_up, s.dtype, pass.rows, s.ffn, units * tid / threads * 16,
                       last < s.ffn ? last : s.ffn, s.activation, room.opened};
    ops.gate(open, 0, 1);
    AGENTMEM_BARRIER
    ops.linear(product(l.down, room.opened, false, room.delta), tid, threads);
    AGENTMEM_BARRIER
  }

  void all() const {
    const void* delta = nullptr;
    const float* weight = nullptr;
    for (const Layer& l : plan.layers) {
      layer(l, delta, weight);
      delta = room.delta;
      weight = l.post_ffn;
    }
    ops.norm(normed(plan.norm, plan.norm_type, delta, weight, nullptr, pass.out), tid, threads);
  }
};

// The most that a split over keys takes in any layer.
int64_t partial_floats(const Plan& plan, const Ops& ops, const Pass& pass) {
  int64_t most = 0;
  const Shape& s = plan.shape;
  for (const Layer& l : plan.layers) {
    Attend look = {};
    look.pages.kv_heads = s.kv_heads;
    look.pages.dim = s.dim;
    look.heads = s.heads;
    look.sequences = pass.sequences;
    look.starts = pass.starts;
    look.contexts = pass.contexts;
    look.window = l.window;
    const int64_t floats = ops.attend_floats(look);
    if (floats > most) most = floats;
  }
  return most;
}

}  // namespace

void Plan::run(const Ops& ops, const Pass& pass, int threads) {
  const int64_t heads = shape.heads * shape.dim, kv = 2 * shape.kv_heads * shape.dim;
  const int64_t sizes[7] = {shape.width, heads + kv, heads, heads, shape.width, 2 * shape.ffn, shape.ffn};
  int64_t bytes = aligned(4 * (threads > 1 ? partial_floats(*this, ops, pass) : 0)) + 64;
  const int64_t partial = bytes;
  for (const int64_t size : sizes) bytes += aligned(4 * size * pass.rows);
  if ((int64_t)room.size() < bytes) room.resize(bytes);
  char* base = (char*)aligned((int64_t)room.data());
  char* at[7];
  int64_t from = partial - 64;
  for (int i = 0; i < 7; i++) {
    at[i] = base + from;
    from += aligned(4 * sizes[i] * pass.rows);
  }
  const Rooms rooms = {at[0], at[1], at[2], at[3], at[4], at[5], at[6], (float*)base};
#ifdef _OPENMP
  if (threads > 1) {
#pragma omp parallel num_threads(threads)
    Runner{*this, ops, pass, rooms, omp_get_thread_num(), omp_get_num_threads()}.all();
    return;
  }
#endif
  Runner{*this, ops, pass, rooms, 0, 1}.all();
}

}  // namespace agentmem
