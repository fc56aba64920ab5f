// Emission: the page's text for a few programs, and what every page has to have.
#include "cuda/emit.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "coda/text.hpp"
#include "cuda/nvrtc.hpp"
#include "embedded.hpp"
#include "plan/plan.hpp"

namespace coda {
namespace {

Config configuration(Schedule schedule, int bm, int bn, int cluster_m = 2, int cluster_n = 1) {
  Config c;
  c.schedule = schedule;
  c.bm = bm;
  c.bn = bn;
  c.warpgroups = schedule == Schedule::pingpong || bm % 128 == 0 ? 2 : bm % 192 == 0 ? 3 : 1;
  c.cluster_m = cluster_m;
  c.cluster_n = cluster_n;
  return c;
}

const Config cooperative = configuration(Schedule::cooperative, 128, 256);
const Config pingpong = configuration(Schedule::pingpong, 128, 192);

Emitted emitted(const Program& p, const Config& c) {
  const auto fit = fitted(c, demand_of(p, c.direct));
  if (!fit) throw Error(ErrorKind::unsupported, "doesn't fit");
  return emit(p, *fit);
}

std::string read(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void expect_golden(const char* program, const Config& c) {
  const Emitted e = emitted(load_program(program), c);
  const std::string path = fmt::format("{}/tests/cuda/golden/{}_{}.cu", CODA_SOURCE_DIR, program, e.config.name());
  if (std::getenv("CODA_WRITE_GOLDEN") != nullptr) std::ofstream(path) << e.source;
  EXPECT_EQ(read(path), e.source) << path << " differs; run with CODA_WRITE_GOLDEN=1 to write it again";
}

TEST(Emit, TheGoldenTextsStand) {
  expect_golden("linear", cooperative);
  expect_golden("residual_norm", cooperative);
  expect_golden("norm_swiglu", pingpong);
  expect_golden("norm_rope", pingpong);
  expect_golden("norm_backward", cooperative);
  expect_golden("linear_cross_entropy", pingpong);
}

/// Tiles of which at least one fits every standard program.
std::vector<Config> tiles() {
  std::vector<Config> out;
  for (const auto& [m, n] : {std::pair{1, 1}, {2, 1}, {1, 2}}) {
    out.push_back(configuration(Schedule::cooperative, 128, 256, m, n));
    out.push_back(configuration(Schedule::cooperative, 192, 192, m, n));
    out.push_back(configuration(Schedule::cooperative, 64, 128, m, n));
    out.push_back(configuration(Schedule::pingpong, 128, 192, m, n));
    out.push_back(configuration(Schedule::pingpong, 128, 128, m, n));
  }
  return out;
}

TEST(Emit, EveryStandardProgramHasPagesInSeveralConfigurations) {
  for (const std::string& name : standard_programs()) {
    const Program p = load_program(name);
    int pages = 0;
    for (const Config& c : tiles()) {
      const auto fit = fitted(c, demand_of(p));
      if (!fit) continue;
      const Emitted e = emit(p, *fit);
      EXPECT_LE(e.shared_bytes, max_shared_bytes) << name << " " << fit->name();
      pages++;
    }
    EXPECT_GE(pages, 6) << name;
  }
}

TEST(Emit, FieldsOfParamsAreAlignedAndDoNotOverlap) {
  for (const std::string& name : standard_programs()) {
    const Emitted e = emitted(load_program(name), configuration(Schedule::pingpong, 128, 128));
    int end = 0;
    for (const Field& f : e.fields) {
      EXPECT_EQ(f.offset % f.size, 0) << name;
      EXPECT_GE(f.offset, end) << name;
      end = f.offset + f.size;
    }
    EXPECT_LE(end, e.params_bytes) << name;
  }
}

TEST(Emit, MapsAreBoxesThatTmaTakes) {
  for (const std::string& name : standard_programs())
    for (const Config& c : tiles()) {
      const Program p = load_program(name);
      const auto fit = fitted(c, demand_of(p));
      if (!fit) continue;
      for (const MapSpec& m : emit(p, *fit).maps) {
        const int row = m.box_inner * static_cast<int>(size_of(m.dtype));
        EXPECT_LE(m.box_inner, 256) << name;
        EXPECT_LE(m.box_outer, 256) << name;
        EXPECT_EQ(row % 16, 0) << name;
        EXPECT_TRUE(m.swizzle == 0 || m.swizzle == row) << name << " slot " << m.slot;
      }
    }
}

TEST(Emit, ADirectSlotHasNoMapAndItsStridesInstead) {
  const Program p = load_program("residual_norm");
  Config c = cooperative;
  c.direct = 1U << *p.slot("residual") | 1U << *p.slot("x");
  const Emitted e = emitted(p, c);
  std::set<std::pair<int, Field::Kind>> fields;
  for (const Field& f : e.fields) fields.insert({f.slot, f.kind});
  for (const char* name : {"residual", "x"}) {
    const int slot = *p.slot(name);
    for (const MapSpec& m : e.maps) EXPECT_NE(m.slot, slot) << name;
    for (const Field::Kind kind : {Field::Kind::pointer, Field::Kind::stride0, Field::Kind::stride1})
      EXPECT_TRUE(fields.count({slot, kind})) << name;
  }
}

TEST(Emit, IllegalConfigurationsSayWhy) {
  const Program rope = load_program("norm_rope"), qk = load_program("norm_qknorm_rope"), linear = load_program("linear");
  const auto why = [](const Program& p, Config c) { return why_illegal(c, demand_of(p)).value_or("legal"); };
  Config c = cooperative;
  c.stages = 3;
  EXPECT_EQ(why(linear, c), "legal");
  c.bn = 100;
  EXPECT_EQ(why(linear, c), "100 columns: a tile has a multiple of 16, at most 512");
  c = pingpong;
  c.stages = 3;
  EXPECT_EQ(why(rope, c), "legal");
  EXPECT_EQ(why(qk, c), "segments of 64 columns aren't whole in 96");
  EXPECT_EQ(why(load_program("norm_rope_adjacent"), c), "192 accumulators a thread: 128 fit beside what this epilogue keeps");
  c.b_major = Major::mn;
  EXPECT_EQ(why(rope, c), "an N-major B is filled 64 columns at a time, and this tile has runs of 32");
  EXPECT_EQ(why(linear.with_dtype(DType::e4m3), c), "e4m3 operands must be K-major: wgmma transposes 16-bit elements only");
  c = pingpong;
  c.stages = 8;
  EXPECT_EQ(why(linear, c), "336000 bytes of shared memory: a block has 232448");
  EXPECT_THROW(emit(linear, c), Error);
}

TEST(Emit, WorkIsWholeClustersAndTheSplitStartsAtTheLastPartialWave) {
  Config c = cooperative;
  c.split = 4;
  const Emitted e = emitted(load_program("linear"), c);
  // 8192 x 4096 in cluster tiles of 256 x 256: 512 on 66 clusters, 7 whole waves and 50.
  const Emitted::Work w = e.work(8192, 4096, 132);
  EXPECT_EQ(e.cluster_tiles(8192, 4096), 512);
  EXPECT_EQ(w.grid, 132);
  EXPECT_EQ(w.split_from, 462);
  EXPECT_EQ(e.workspace_bytes(w), std::int64_t{50} * 2 * 3 * 128 * 256 * 4);
  EXPECT_EQ(e.counter_count(w), 50 * 2 * 8);
  EXPECT_EQ(e.work(100, 100, 132).grid, 8);
}

TEST(Emit, PairsInTwoWaysAreRefusedByName) {
  const Program p = parse("program both\n  gemm A: bf16[M, K], B: bf16[N, K]\n  a, b = split(acc, halves)\n"
                          "  c, d = split(acc, adjacent)\n  out y: bf16[M, N/2] = a * b\n  out z: bf16[M, N/2] = c * d\n");
  try {
    demand_of(p);
    FAIL() << "not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(e.what()).find("both: columns are paired in two ways"), std::string::npos) << e.what();
  }
}

TEST(Emit, AFinishedPairOfColumnsTakesEachMembersOperand) {
  for (const char* pairing : {"adjacent", "halves"}) {
    const Program p = parse(fmt::format("program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in left: f32[N/2]\n  in right: f32[N/2]\n"
                                        "  finish f: f32[N] = sum(acc, over m) * join(left, right, {})\n", pairing));
    const std::string page = emitted(p, pingpong).source;
    EXPECT_NE(page.find("n_0 * p.f_stride0, sum0.sum() * load1(f32(), p.left, q"), std::string::npos) << page;
    EXPECT_NE(page.find("n_1 * p.f_stride0, sum0.sum() * load1(f32(), p.right, q"), std::string::npos) << page;
  }
}

TEST(Emit, PicksOfColumnsAskForAPlaceEachAndForCounters) {
  const Program p = parse("program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in i: i32[N]\n  in j: i64[N]\n"
                          "  finish f: f32[N] = pick(acc, i, over m)\n  finish g: f32[N] = pick(acc, j, over m, -100)\n");
  const Emitted e = emitted(p, cooperative);
  EXPECT_EQ(e.column_picks, 2);
  EXPECT_EQ(e.column_values, 0);
  const Emitted::Work w = e.work(1000, 1000, 132);
  EXPECT_EQ(e.workspace_bytes(w), 2 * 1000 * 4);
  EXPECT_EQ(e.counter_count(w), 4);
}

TEST(Emit, PagesCompileWithoutSpillsOrSerialisedProducts) {
  std::vector<embedded::File> headers;
  for (const embedded::File& f : embedded::device_headers()) headers.push_back({f.name, f.text});
  for (const char* name : {"linear", "residual_norm", "norm_swiglu"}) {
    const Emitted e = emitted(load_program(name), configuration(Schedule::pingpong, 128, 128));
    std::vector<embedded::File> all = headers;
    all.push_back({"wgmma.cuh", e.wgmma});
    cuda::Compiled compiled;
    try {
      compiled = cuda::compile(e.source, all);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::unsupported) GTEST_SKIP() << error.what();
      throw;
    }
    EXPECT_EQ(compiled.usage.spill_store_bytes, 0) << name;
    EXPECT_EQ(compiled.log.find("C75"), std::string::npos) << compiled.log;
  }
}

// Table entries that only the first arm of a `where` wants are loaded where its condition holds.
TEST(Emit, TablesAreReadWhereAColumnWantsThem) {
  EXPECT_NE(emitted(load_program("norm_rope"), pingpong).source.find(" ? r.cos_row : nullptr"), std::string::npos);
  const auto guarded = [](const std::string& body) {
    const Program p = parse("program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in place: i64[M]\n  in t: f32[P, Q]\n  in limit: i32[]\n  c = lookup(t, place, col)\n" + body);
    return emitted(p, cooperative).source.find(": nullptr") != std::string::npos;
  };
  EXPECT_TRUE(guarded("  out y: f32[M, N] = where(col < limit, acc * c, acc)\n"));
  EXPECT_TRUE(guarded("  w = col < limit\n  out y: f32[M, N] = 2 * where(w, acc * c, acc) + where(w, c, 0)\n"));
  EXPECT_FALSE(guarded("  out y: f32[M, N] = where(col < limit, acc, acc * c)\n")) << "the other arm";
  EXPECT_FALSE(guarded("  out y: f32[M, N] = where(col < limit, acc * c, c)\n")) << "both";
  EXPECT_FALSE(guarded("  out y: f32[M, N] = where(row < limit, acc * c, acc)\n")) << "a condition of rows";
  EXPECT_FALSE(guarded("  out y: f32[M, N] = where(c < limit, acc * c, acc)\n")) << "the condition's own";
  EXPECT_FALSE(guarded("  out y: f32[M, N] = where(col < limit, acc * c, acc)\n  finish s: f32[M] = sum(c, over n)\n")) << "a result of its own";
}

// A sum needs no predicate where what it adds is 0 outside the matrix.
TEST(Emit, PredicatesStandOnlyWhereSomethingIsAdded) {
  const auto guarded = [](const std::string& body, const char* predicate) {
    const std::string text = "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in x: bf16[M, N]\n  in r: f32[M]\n  in c: f32[N]\n" + body +
                             "  out all: f32[M, N] = acc * c + x * r\n";
    const Program p = parse(text);
    const std::string page = emit(p, choose(demand_of(p), {.m = 512, .n = 512, .k = 512}).config).source;
    const std::size_t at = page.find(".add("), end = page.find('\n', at);
    return page.substr(at, end - at).find(predicate) != std::string::npos;
  };
  const std::string n = "  finish s: f32[M] = sum(", m = "  finish s: f32[N] = sum(";
  EXPECT_FALSE(guarded(n + "(acc + x) * (acc + x), over n)\n", "ok")) << "zeros past the last column";
  EXPECT_FALSE(guarded(n + "(acc + x) * c, over n)\n", "ok"));
  EXPECT_TRUE(guarded(n + "acc + 1, over n)\n", "ok"));
  EXPECT_TRUE(guarded(n + "acc * r, over n)\n", "ok")) << "a row's infinity would make 0 a NaN";
  EXPECT_TRUE(guarded(n + "exp(acc), over n)\n", "ok"));
  EXPECT_FALSE(guarded(m + "acc * (x * r), over m)\n", "p.M"));
  EXPECT_TRUE(guarded(m + "acc * c, over m)\n", "p.M"));
  EXPECT_TRUE(guarded("  a, b = split(acc, halves)\n" + n + "a * b, over n)\n", "ok")) << "past N/2 stand the partners";
}

}  // namespace
}  // namespace coda
