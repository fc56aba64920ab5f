// What emission has to know of a program: how columns pair up, which boxes pass through shared memory, which
// reductions run over what. Internal to src/cuda/emit*.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "coda/program.hpp"
#include "cuda/emit.hpp"

namespace coda::emission {

/// The columns a thread evaluates at a time: one; two neighbours (a pair); a pair whose members lie far apart.
enum class Unit : std::uint8_t { single, adjacent, far };

/// One box a chunk, or one slice of a column vector.
struct Box {
  enum class Form : std::uint8_t {
    full,          ///< an element a column
    half,          ///< an element a pair of neighbours
    twice,         ///< two neighbouring elements a column
    transposed,    ///< an output stored [N, M]
    columns,       ///< a column vector
    half_columns,  ///< ... an element a pair of neighbours
  };
  Form form = Form::full;
  int slot = 0;
  DType dtype = DType::f32;
  std::string map;          ///< name of its map in the page
  std::string array;        ///< name of the register array it fills or is filled from ("twice": the first of two)
  std::string x;            ///< its first column in the tensor, as an expression of the page
  int half = -1;            ///< MapSpec::half
  bool add = false;         ///< an accumulating f32 output: reduced in memory
  /// Bytes for each column of a chunk; 0 where that isn't a whole number (and the slot has to go direct).
  int column_bytes() const;
  int elements(int chunk) const;
  bool vector() const { return form == Form::columns || form == Form::half_columns; }
};

struct Reduction {
  enum class Kind : std::uint8_t { sum, max, softmax, pick };
  Kind kind = Kind::sum;
  Over over;
  ValueId argument = no_value, index = no_value, ignore = no_value;
  Width width = Width::full;  ///< of the argument
  std::string name;
  int level = 0;              ///< segments: after those of lower levels
  int maximum = -1;           ///< of a softmax's sum over segments: the reduction that is its maximum
  int floats() const { return kind == Kind::softmax ? 2 : 1; }
  const char* type() const {
    if (kind == Kind::max) return "Max";
    if (kind == Kind::softmax && over.kind != Over::Kind::segment) return "Softmax";
    return kind == Kind::pick && over.kind == Over::Kind::n ? "Pick" : "Sum";
  }
};

struct Analysis {
  Analysis(const Program&, std::uint32_t direct);

  const Program& program;
  std::vector<Slot> slots;
  std::vector<bool> direct;          ///< by slot
  Unit unit = Unit::single;
  Pairing pairing;                   ///< of half-width values
  int chunk_run = 0;                 ///< a chunk must divide this (0: anything)
  std::vector<Box> loads, stores;
  std::vector<Reduction> reductions;
  std::map<ValueId, int> reduction_of;  ///< node -> index into reductions
  std::vector<int> uses;             ///< of each node, from outputs and reductions
  std::vector<std::string> names;    ///< of each node: its first let name, or ""

  int operand_slot(int operand) const { return 2 + operand; }
  int output_slot(int output) const { return 2 + static_cast<int>(program.operands.size()) + output; }
  /// Instances of a value in a unit: full 1 or 2, half 1, twice 2 or 4 (member of the unit * 2 + member of the twice).
  int instances(Width w) const;
  /// "_1" where a name stands for several arrays.
  std::string array_suffix(Width w, int instance) const;
  /// Columns of a part of the tile that one segment takes.
  int segment_length(const Reduction&) const;
  /// The pairing of a twice-width operand or value: adjacent where the program leaves it open.
  Pairing twice_pairing(ValueId v) const;
  Pairing twice_pairing_of_operand(int operand) const;
  Demand demand() const;

 private:
  void find_pairing();
  void find_reductions();
  int add_reduction(Reduction r);
  void find_boxes();
  void add_matrix(std::vector<Box>& to, int slot, const Shape& shape, DType dtype, Pairing twice, const std::string& array);
  void count(ValueId v);
};

/// Whether `v` is 0 past the matrix's last column (over n) or row (over m), as it stands in the registers there: a sum then
/// needs no predicate. TMA fills what lies outside the tile operands with zeros, direct loads do the same, and the kernel
/// zeroes the accumulators there (Epilogue::ZEROED). A value that depends on anything else than these and constants counts
/// as unknown.
bool vanishes_outside(const Analysis&, ValueId v, Over::Kind over);

/// For each node the condition, of columns alone, outside which nothing wants its value (the first arm of a `where`); or
/// no_value.
std::vector<ValueId> guards_of(const Analysis&);

const char* tag_of(DType);  ///< "bf16", "i64_": the device header's name of an element type

}  // namespace coda::emission
