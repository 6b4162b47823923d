// The Python module: pointers and sizes in, nothing kept. Checks are the caller's (native.py).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "ops.h"
#include "plan.h"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace nb = nanobind;
using namespace agentmem;

#define AGENTMEM_TABLE(isa)                                    \
  namespace agentmem {                                         \
  namespace isa {                                              \
  AGENTMEM_KERNELS(AGENTMEM_DECLARE)                           \
  int64_t attend_floats(const Attend&);                        \
  }                                                            \
  }
#define AGENTMEM_ENTRY(op, args) AGENTMEM_NOW::op,

AGENTMEM_TABLE(generic)
#ifdef AGENTMEM_X86
AGENTMEM_TABLE(avx2)
AGENTMEM_TABLE(avx512)
AGENTMEM_TABLE(zen4)
#endif

namespace {

std::vector<Ops> tables() {
  std::vector<Ops> all;
#define AGENTMEM_NOW agentmem::generic
  all.push_back({"generic", AGENTMEM_KERNELS(AGENTMEM_ENTRY) agentmem::generic::attend_floats});
#undef AGENTMEM_NOW
#ifdef AGENTMEM_X86
  __builtin_cpu_init();
  const bool two = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool five = two && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  const bool all_of = five && __builtin_cpu_supports("avx512vbmi") &&
                      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
#define AGENTMEM_NOW agentmem::avx2
  if (two) all.push_back({"avx2", AGENTMEM_KERNELS(AGENTMEM_ENTRY) agentmem::avx2::attend_floats});
#undef AGENTMEM_NOW
#define AGENTMEM_NOW agentmem::avx512
  if (five) all.push_back({"avx512", AGENTMEM_KERNELS(AGENTMEM_ENTRY) agentmem::avx512::attend_floats});
#undef AGENTMEM_NOW
#define AGENTMEM_NOW agentmem::zen4
  if (all_of) all.push_back({"zen4", AGENTMEM_KERNELS(AGENTMEM_ENTRY) agentmem::zen4::attend_floats});
#undef AGENTMEM_NOW
#endif
  return all;
}

const std::vector<Ops> kTables = tables();
const Ops* now = &kTables.back();

template <class Args>
void run(void (*op)(const Args&, int, int), const Args& args, int threads) {
  nb::gil_scoped_release release;
#ifdef _OPENMP
  if (threads > 1) {
#pragma omp parallel num_threads(threads)
    op(args, omp_get_thread_num(), omp_get_num_threads());
    return;
  }
#endif
  op(args, 0, 1);
}

using P = uintptr_t;

Matrix matrix(int type, P data, P scale, int64_t rows, int64_t cols, int64_t group, P offset) {
  return {type, (const void*)data, (const float*)scale, rows, cols, group, (const uint16_t*)offset};
}

void linear(int type, P data, P scale, int64_t rows, int64_t cols, int64_t group, P offset, P x,
            int x_type, P x_scale, int64_t m, P bias, int bias_type, P out, int out_type, int threads) {
  const Linear a = {matrix(type, data, scale, rows, cols, group, offset), (const void*)x, x_type,
                    (const float*)x_scale, m, (const void*)bias, bias_type, (void*)out, out_type};
  run(now->linear, a, threads);
}

void norm(P x, int x_type, P delta, int delta_type, P weight, int weight_type, float eps, int64_t m,
          int64_t width, P out, int out_type, int round_type, P scale, int threads) {
  const Norm a = {(void*)x, x_type, (const void*)delta, delta_type, nullptr, (const void*)weight,
                  weight_type, eps, m, width, (void*)out, out_type, round_type, (const float*)scale};
  run(now->norm, a, threads);
}

void gate(P x, int type, int64_t m, int64_t width, int activation, P out, int threads) {
  run(now->gate, Gate{(const void*)x, type, m, width, 0, width, activation, (void*)out}, threads);
}

Pages pages(int type, P keys, P values, P key_scales, P value_scales, int64_t block_size,
            int64_t kv_heads, int64_t dim) {
  return {type, (void*)keys, (void*)values, (float*)key_scales, (float*)value_scales, block_size,
          kv_heads, dim};
}

void rope(P qkv, int type, P rotations, P slots, int page_type, P keys, P values, P key_scales,
          P value_scales, int64_t block_size, int64_t kv_heads, int64_t dim, int64_t m,
          int64_t heads, P qk_norm, float eps, P out, int threads) {
  const Rope a = {(const void*)qkv, type, (const float*)rotations, (const int64_t*)slots,
                  pages(page_type, keys, values, key_scales, value_scales, block_size, kv_heads, dim),
                  m, heads, (const float*)qk_norm, eps, (void*)out};
  run(now->rope, a, threads);
}

void embed(P tokens, int type, P data, P scale, int64_t rows, int64_t cols, int64_t group,
           P offset, int64_t m, float factor, P out, int threads) {
  const Embed a = {(const int64_t*)tokens, matrix(type, data, scale, rows, cols, group, offset), m,
                   factor, (float*)out};
  run(now->embed, a, threads);
}

void unpack(int type, P data, P scale, int64_t rows, int64_t cols, int64_t group, P offset,
            P out, int threads) {
  run(now->unpack, Unpack{matrix(type, data, scale, rows, cols, group, offset), (void*)out}, threads);
}

// Quantises x in groups of 64, then multiplies; `room` holds m * cols * 9 / 8 bytes.
void grouped(P data, P scale, int64_t rows, int64_t cols, P x, int x_type, int64_t m, P bias,
             int bias_type, P out, int out_type, P room, int threads) {
  const int64_t groups = m * cols / 64;
  int8_t* q = (int8_t*)room;
  float* scales = (float*)(q + m * cols);
  int32_t* sums = (int32_t*)(scales + groups);
  const Quantise first = {(const void*)x, x_type, m, cols, q, scales, sums};
  const Grouped second = {{I8, (const void*)data, (const float*)scale, rows, cols, 0}, q, scales,
                          sums, m, (const void*)bias, bias_type, (void*)out, out_type};
  run(now->quantise, first, threads);
  run(now->grouped, second, threads);
}

void attend(P q, int type, int page_type, P keys, P values, P key_scales, P value_scales,
            int64_t block_size, int64_t kv_heads, int64_t dim, int64_t heads, int64_t sequences,
            P starts, P contexts, P table, int64_t table_columns, float scale, int64_t window,
            P out, int threads) {
  Attend a = {(const void*)q, type,
              pages(page_type, keys, values, key_scales, value_scales, block_size, kv_heads, dim),
              heads, sequences, table_columns, (const int32_t*)starts, (const int32_t*)contexts,
              (const int32_t*)table, scale, window, (void*)out, nullptr};
  const int64_t floats = threads > 1 ? now->attend_floats(a) : 0;
  if (!floats) return run(now->attend, a, threads);
  std::vector<float> partial(floats);
  a.partial = partial.data();
  run(now->attend, a, threads);
  run(now->attend_merge, a, threads);
}

// A matrix and what belongs to it: type, data, scale, rows, cols, group, offset, bias, bias type,
// input scale.
using Numbers = std::vector<int64_t>;
Factor factor(const Numbers& v) {
  return {matrix((int)v.at(0), v.at(1), v.at(2), v.at(3), v.at(4), v.at(5), v.at(6)),
          (const void*)v.at(7), (int)v.at(8), (const float*)v.at(9)};
}

// norms: attention's and its type, feed-forward's and its type, of queries and keys, behind
// attention, behind feed-forward. place: group, layer in it, window, local.
void add_layer(Plan& plan, const Numbers& norms, const Numbers& qkv, const Numbers& out,
               const Numbers& gate_up, const Numbers& down, const Numbers& place) {
  plan.layers.push_back({(const void*)norms.at(0), (const void*)norms.at(2), (int)norms.at(1),
                         (int)norms.at(3), (const float*)norms.at(4), (const float*)norms.at(5),
                         (const float*)norms.at(6), factor(qkv), factor(out), factor(gate_up),
                         factor(down), (int)place.at(0), place.at(1), place.at(2), place.at(3) != 0});
}

// Of each group eight: page type, data, scales, blocks, block size, slots, table, its columns.
void run_plan(Plan& plan, P x, int64_t rows, int64_t sequences, P far, P near, P starts, P contexts,
              const Numbers& groups, P out, int threads) {
  Pass pass = {(void*)x, rows, sequences, (const float*)far, (const float*)near,
               (const int32_t*)starts, (const int32_t*)contexts, {}, (void*)out};
  for (size_t i = 0; i + 8 <= groups.size(); i += 8)
    pass.places.push_back({(int)groups[i], (char*)groups[i + 1], (char*)groups[i + 2], groups[i + 3],
                           groups[i + 4], (const int64_t*)groups[i + 5],
                           (const int32_t*)groups[i + 6], groups[i + 7]});
  for (const Layer& l : plan.layers)
    if ((size_t)l.group >= pass.places.size()) throw nb::value_error("a group without pages");
  nb::gil_scoped_release release;
  plan.run(*now, pass, threads);
}

void argmax(P x, int type, int64_t m, int64_t width, P out, int threads) {
  run(now->argmax, Argmax{(const void*)x, type, m, width, (int64_t*)out}, threads);
}

void use(const std::string& name) {
  for (const Ops& ops : kTables)
    if (name == ops.name) {
      now = &ops;
      return;
    }
  throw nb::value_error("this processor does not have it");
}

}  // namespace

NB_MODULE(_native, m) {
  m.attr("VERSION") = 2;
  m.def("available", [] {
    std::vector<std::string> names;
    for (const Ops& ops : kTables) names.push_back(ops.name);
    return names;
  });
  m.def("current", [] { return std::string(now->name); });
  m.def("use", &use);
  m.def("linear", &linear);
  m.def("norm", &norm);
  m.def("gate", &gate);
  m.def("rope", &rope);
  m.def("embed", &embed);
  nb::class_<Plan>(m, "Plan")
      .def("__init__",
           [](Plan* p, int64_t width, int64_t ffn, int64_t heads, int64_t kv_heads, int64_t dim,
              float eps, float scale, int activation, int dtype, int residual, bool round_first,
              P norm, int norm_type) {
             new (p) Plan{{width, ffn, heads, kv_heads, dim, eps, scale, activation, dtype, residual,
                           round_first}, {}, (const void*)norm, norm_type, {}};
           })
      .def("add_layer", &add_layer)
      .def("run", &run_plan);
  m.def("argmax", &argmax);
  m.def("unpack", &unpack);
  m.def("grouped", &grouped);
  m.def("attend", &attend);
}
