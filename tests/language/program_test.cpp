// What a Program says of itself: slots, equality, hash, and programs made from it.
#include <gtest/gtest.h>

#include "coda/build.hpp"
#include "coda/text.hpp"

namespace coda {
namespace {

const std::string head = "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n";

TEST(Slots, StandInTheOrderOfTheDeclarations) {
  const Program p = load_program("residual_norm");
  std::vector<std::string_view> names;
  for (const Slot& s : p.slots()) names.push_back(s.name);
  ASSERT_GE(names.size(), 5u);
  EXPECT_EQ(names[0], "A");
  EXPECT_EQ(names[1], "B");
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(p.slot(names[i]), static_cast<int>(i));
  EXPECT_EQ(p.slot("nothing"), std::nullopt);
  EXPECT_EQ(p.slots().back().role, Slot::Role::output);
}

TEST(Hash, IgnoresNamesAndTheOrderOfStatements) {
  const std::string a = "  in x: f32[M]\n  z = acc * x\n  out y: bf16[M, N] = z\n  finish s: f32[M] = sum(z, over n)\n";
  const std::string b =
      "  in scale: f32[M]\n  finish total: f32[M] = sum(acc * scale, over n)\n  out result: bf16[M, N] = acc * scale\n";
  const std::string c =
      "  in scale: f32[M]\n  out result: bf16[M, N] = acc * scale\n  finish total: f32[M] = sum(acc * scale, over n)\n";
  const auto hash = [](const std::string& body) { return parse(head + body).structural_hash(); };
  EXPECT_EQ(hash(a), hash(c));
  EXPECT_NE(hash(a), hash(b)) << "the order of arguments is part of what is called";
  EXPECT_NE(parse(head + a), parse(head + c));
}

TEST(Hash, TellsApartWhatDiffers) {
  std::vector<std::uint64_t> hashes;
  for (const std::string body : {"out y: bf16[M, N] = acc",
                                 "out y: f32[M, N] = acc",
                                 "out y: bf16[N, M] = acc",
                                 "out y: bf16[M, N] += acc",
                                 "out y: bf16[M, N] = acc * 2",
                                 "out y: bf16[M, N] = acc * 2.0",
                                 "out y: bf16[M, N] = acc * 3",
                                 "out y: bf16[M, N] = 2 * acc",
                                 "out y: bf16[M, N] = acc + 2",
                                 "out y: bf16[M, N] = acc * N",
                                 "out y: bf16[M, N] = acc * M",
                                 "out y: bf16[M, N] = acc * row",
                                 "out y: bf16[M, N] = acc * col",
                                 "out y: bf16[M, N] = round_to(acc, bf16)",
                                 "out y: bf16[M, N] = round_to(acc, f16)",
                                 "out y: bf16[M, N] = sum(acc, over segment(4))",
                                 "out y: bf16[M, N] = sum(acc, over segment(8))",
                                 "out y: bf16[M, N] = max(acc, over segment(8))",
                                 "finish y: f32[M] = sum(acc, over n)",
                                 "finish y: f32[N] = sum(acc, over m)",
                                 "finish y: f32[] = sum(acc, over mn)",
                                 "in x: f32[M]\nout y: bf16[M, N] = acc * x",
                                 "in x: f32[N]\nout y: bf16[M, N] = acc * x",
                                 "in x: bf16[N]\nout y: bf16[M, N] = acc * x",
                                 "in x: f32[8]\nout y: bf16[M, N] = acc * lookup(x, row)",
                                 "in x: f32[9]\nout y: bf16[M, N] = acc * lookup(x, row)",
                                 "in x: f32[P]\nout y: bf16[M, N] = acc * lookup(x, row)",
                                 "in x: f32[P, P]\nout y: bf16[M, N] = acc * lookup(x, row, row)",
                                 "in x: f32[P, Q]\nout y: bf16[M, N] = acc * lookup(x, row, row)",
                                 "a, _ = split(acc, halves)\nout y: bf16[M, N/2] = a",
                                 "_, a = split(acc, halves)\nout y: bf16[M, N/2] = a",
                                 "a, _ = split(acc, adjacent)\nout y: bf16[M, N/2] = a",
                                 "a, _ = split(acc, heads(8))\nout y: bf16[M, N/2] = a",
                                 "a, _ = split(acc, heads(8, 4))\nout y: bf16[M, N/2] = a"})
    hashes.push_back(parse(head + body + "\n").structural_hash());
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::adjacent_find(hashes.begin(), hashes.end()), hashes.end());
}

TEST(Hash, IsTheSameOnEveryMachine) {
  // Disk caches are named by it: a change here must be meant.
  EXPECT_EQ(parse(head + "  out y: bf16[M, N] = acc\n").structural_hash(), 12114285285015471453u);
}

TEST(Without, DropsAnOutputAndWhatOnlyItUsed) {
  const Program p =
      parse(head +
            "  in w: f32[N]\n  in r: f32[M]\n  z = acc * r\n  a, b = split(z, halves)\n"
            "  out y: bf16[M, N] = z\n  out h: bf16[M, N/2] = a\n  finish s: f32[M] = sum(z * w, over n)\n"
            "  out g: bf16[M, N/2] = a * b\n");
  EXPECT_EQ(print(p.without("s")), head +
                                       "  in   r: f32[M]\n  z = acc * r\n  a, b = split(z, halves)\n"
                                       "  out  y: bf16[M, N] = z\n  out  h: bf16[M, N/2] = a\n"
                                       "  out  g: bf16[M, N/2] = a * b\n");
  EXPECT_EQ(print(p.without("s").without("g").without("y")),
            head + "  in   r: f32[M]\n  z = acc * r\n  a, _ = split(z, halves)\n  out  h: bf16[M, N/2] = a\n");
  EXPECT_EQ(print(p.without("g").without("h")), head +
                                                    "  in   w: f32[N]\n  in   r: f32[M]\n  z = acc * r\n"
                                                    "  out  y: bf16[M, N] = z\n"
                                                    "  finish s: f32[M] = sum(z * w, over n)\n");
  EXPECT_THROW(p.without("w"), Error);
  EXPECT_THROW(p.without("s").without("g").without("y").without("h"), Error);
}

TEST(WithDtype, ReplacesEveryBf16) {
  const Program p = parse(head + "  in w: bf16[N]\n  in r: f32[M]\n  out y: bf16[M, N] = acc * w * r\n");
  EXPECT_EQ(print(p.with_dtype(DType::f16)),
            "program p\n  gemm A: f16[M, K], B: f16[N, K]\n  in   w: f16[N]\n"
            "  in   r: f32[M]\n  out  y: f16[M, N] = acc * w * r\n");
  EXPECT_THROW(p.with_dtype(DType::i32), Error);
  EXPECT_THROW(p.with_dtype(DType::f64), Error);
}

TEST(Check, RefusesProgramsThatWerePutTogetherWrongly) {
  const Program good = load_program("norm_swiglu");
  const auto expect_refused = [&](std::string_view what, auto&& change) {
    Program p = good;
    change(p);
    EXPECT_THROW(check(p), Error) << what;
  };
  expect_refused("an argument after its user", [](Program& p) { p.nodes[2].args[0] = 5; });
  expect_refused("an argument that isn't there", [](Program& p) { p.nodes[2].args[0] = 1000; });
  expect_refused("a missing argument", [](Program& p) { p.nodes[2].args[1] = no_value; });
  expect_refused("an operand that isn't there", [](Program& p) { p.nodes[1].index = 9; });
  expect_refused("an output of no value", [](Program& p) { p.outputs[0].value = no_value; });
  expect_refused("a statement twice", [](Program& p) { p.statements.push_back(0); });
  expect_refused("a statement that isn't there", [](Program& p) { p.statements[0] = 77; });
  expect_refused("an output that is no statement", [](Program& p) { p.statements.pop_back(); });
  expect_refused("a let of no value", [](Program& p) { p.lets[0].values[0] = -7; });
  expect_refused("a let of too many names", [](Program& p) { p.lets[0].names.push_back("more"); });
  expect_refused("a name that is none", [](Program& p) { p.outputs[0].name = "two words"; });
  expect_refused("a layout that the extents don't say",
                 [](Program& p) { p.operands[0].shape.layout = Layout::column; });
  expect_refused("no output", [](Program& p) { p.outputs.clear(), p.statements.resize(2); });
  Program same = good;
  check(same);
  EXPECT_EQ(same, good);
}

TEST(Types, SayKindRowsWidthPairingAndStage) {
  const Program p = parse(head +
                          "  in r: f32[M]\n  in w: f32[M, N/2]\n  a, b = split(acc * r, heads(8))\n"
                          "  h = w * 2\n  out y: bf16[M, N/2] = a * h + b\n  i = row + 1\n"
                          "  finish s: f32[N/2] = sum(a * i, over m)\n");
  const auto type = [&](std::string_view name) {
    for (const Let& let : p.lets)
      for (std::size_t i = 0; i < let.names.size(); ++i)
        if (let.names[i] == name) return p.node(let.values[i]).type;
    return p.node(p.outputs[1].value).type;
  };
  const Pairing heads8{Pairing::Kind::heads, 8, 8};
  EXPECT_EQ(type("a"), (Type{ValueKind::real, true, Width::half, heads8, Stage::tile}));
  EXPECT_EQ(type("h"), (Type{ValueKind::real, true, Width::half, heads8, Stage::tile}))
      << "a pairing flows to whom it meets";
  EXPECT_EQ(type("i"), (Type{ValueKind::integer, true, Width::none, {}, Stage::tile}));
  EXPECT_EQ(type("the finish"), (Type{ValueKind::real, false, Width::half, heads8, Stage::finish}));
}

TEST(Ops, AreSpelledAsTheTextSpellsThem) {
  EXPECT_EQ(name_of(Op::add), "+");
  EXPECT_EQ(name_of(Op::floordiv), "//");
  EXPECT_EQ(name_of(Op::logical_not), "not");
  EXPECT_EQ(name_of(Op::gelu_tanh), "gelu_tanh");
  EXPECT_EQ(name_of(Op::softmax_sum), "softmax_stats");
  EXPECT_EQ(arity_of(Op::clamp), 3);
  EXPECT_EQ(arity_of(Op::split), 0);
  EXPECT_EQ(formula_of(Op::clamp), "minimum(maximum(x, y), z)");
}

}  // namespace
}  // namespace coda
