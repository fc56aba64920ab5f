// Safetensors files: what is written is read back, and no bytes can do worse than an Error.
#include "coda/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <random>

#include "coda/error.hpp"
#include "io/temporary_directory.hpp"

namespace coda {
namespace {

using test::read_file;
using test::TemporaryDirectory;
using test::write_file;

std::string file_of(const std::string& header, const std::string& data = "") {
  std::uint64_t n = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &n, 8);
  return bytes + header + data;
}

/// The message of the Error that opening these bytes throws; empty when it throws none.
std::string refusal_of(const std::string& bytes) {
  TemporaryDirectory dir;
  write_file(dir / "x.safetensors", bytes);
  try {
    SafetensorsFile file(dir / "x.safetensors");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::io);
    return e.what();
  }
  return "";
}

void expect_refused(const std::string& bytes, const std::string& part) {
  const std::string message = refusal_of(bytes);
  EXPECT_NE(message.find(part), std::string::npos) << "message: " << message << "\nexpected in it: " << part;
}

HostTensor counted(DType dtype, std::initializer_list<std::int64_t> shape) {
  HostTensor t(dtype, shape);
  auto* bytes = static_cast<unsigned char*>(t.view().data);
  for (std::size_t i = 0; i < static_cast<std::size_t>(t.numel()) * size_of(dtype); ++i)
    bytes[i] = static_cast<unsigned char>(i * 7 + 3);
  return t;
}

TEST(Safetensors, EveryDtypeComesBackBitForBit) {
  TemporaryDirectory dir;
  std::vector<HostTensor> tensors;
  std::vector<NamedTensor> named;
  for (const DType t :
       {DType::f32, DType::bf16, DType::f16, DType::e4m3, DType::e5m2, DType::i32, DType::i64, DType::f64}) {
    tensors.push_back(counted(t, {3, 5}));
    named.push_back({"t." + std::string(name_of(t)), tensors.back()});
  }
  write_safetensors(dir / "x", named, {{"format", "pt"}, {"note", "a \"quoted\" line\n"}});
  const SafetensorsFile file(dir / "x");
  EXPECT_EQ(file.metadata().at("note"), "a \"quoted\" line\n");
  ASSERT_EQ(file.entries().size(), named.size());
  for (const NamedTensor& t : named) {
    const HostTensor back = file.read(t.name);
    ASSERT_EQ(back.view().dtype, t.tensor.dtype);
    ASSERT_EQ(back.view().rank, 2);
    EXPECT_EQ(std::memcmp(back.view().data, t.tensor.data, 15 * size_of(t.tensor.dtype)), 0) << t.name;
  }
  // Data begins at a multiple of 8 and each tensor at a multiple of its element.
  std::uint64_t header = 0;
  const std::string bytes = read_file(dir / "x");
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  for (const SafetensorsEntry& e : file.entries()) EXPECT_EQ(e.begin % size_of(*e.dtype), 0u) << e.name;
}

TEST(Safetensors, ScalarsEmptyTensorsAndNoTensorsAtAllComeBack) {
  TemporaryDirectory dir;
  const HostTensor scalar = counted(DType::f32, {});
  const HostTensor empty(DType::bf16, {0, 7});
  write_safetensors(dir / "x", std::vector<NamedTensor>{{"scalar", scalar}, {"empty", empty}});
  const SafetensorsFile file(dir / "x");
  EXPECT_EQ(*file.read("scalar").as<float>(), *scalar.as<float>());
  EXPECT_EQ(file.read("empty").view().shape[1], 7);
  write_safetensors(dir / "none", {});
  EXPECT_TRUE(SafetensorsFile(dir / "none").entries().empty());
}

TEST(Safetensors, StridedTensorsAreStoredRowMajor) {
  TemporaryDirectory dir;
  HostTensor t(DType::f32, {2, 3});
  for (int i = 0; i < 6; ++i) t.as<float>()[i] = static_cast<float>(i);
  write_safetensors(dir / "x", std::vector<NamedTensor>{{"t", t.view().transposed()}});
  const HostTensor back = SafetensorsFile(dir / "x").read("t");
  ASSERT_EQ(back.view().shape[0], 3);
  const float expected[] = {0, 3, 1, 4, 2, 5};
  EXPECT_EQ(std::memcmp(back.view().data, expected, sizeof expected), 0);
}

TEST(Safetensors, EqualTensorsGiveEqualFilesInWhateverOrderTheyAreGiven) {
  TemporaryDirectory dir;
  const HostTensor a = counted(DType::f32, {4}), b = counted(DType::bf16, {4});
  write_safetensors(dir / "x", std::vector<NamedTensor>{{"a", a}, {"b", b}});
  write_safetensors(dir / "y", std::vector<NamedTensor>{{"b", b}, {"a", a}});
  EXPECT_EQ(read_file(dir / "x"), read_file(dir / "y"));
}

TEST(Safetensors, AFileInHuggingFaceLayoutIsRead) {
  const std::string header = R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("mask":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}   )";
  TemporaryDirectory dir;
  std::string data(11, '\0');
  const float w[] = {1.5f, -2.0f};
  std::memcpy(data.data(), w, 8);
  write_file(dir / "x", file_of(header, data));
  const SafetensorsFile file(dir / "x");
  EXPECT_EQ(file.read("w").as<float>()[1], -2.0f);
  try {
    file.read("mask");
    FAIL() << "a type that the library has no use for was read";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(e.what()).find("U8"), std::string::npos);
  }
}

TEST(Safetensors, ReadingIntoAnotherShapeOrTypeNamesBoth) {
  TemporaryDirectory dir;
  write_safetensors(dir / "x", std::vector<NamedTensor>{{"t", counted(DType::f32, {2, 3})}});
  const SafetensorsFile file(dir / "x");
  const HostTensor other_shape(DType::f32, {3, 2}), other_type(DType::bf16, {2, 3});
  try {
    file.read_into("t", other_shape);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::shape);
    EXPECT_NE(std::string(e.what()).find("has shape [2, 3], expected [3, 2]"), std::string::npos) << e.what();
  }
  try {
    file.read_into("t", other_type);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::dtype);
  }
  EXPECT_THROW(file.read("absent"), Error);
}

TEST(Safetensors, MissingFilesAndDirectoriesAreRefused) {
  TemporaryDirectory dir;
  EXPECT_THROW(SafetensorsFile(dir / "absent"), Error);
  EXPECT_THROW(SafetensorsFile(dir / "."), Error);
  EXPECT_THROW(write_safetensors(dir / ".", {}), Error);
  EXPECT_THROW(write_safetensors(dir / "absent/x", {}), Error);
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(SafetensorsFile(dir / "pipe"), Error);
}

TEST(Safetensors, DamagedHeadersAreRefusedWithTheReason) {
  expect_refused("", "it has 0 bytes");
  expect_refused("1234567", "it has 7 bytes");
  expect_refused(std::string(8, '\xff'), "at most 100000000 are accepted");
  expect_refused(file_of("{}").substr(0, 9), "truncated");
  expect_refused(file_of(""), "not JSON");
  expect_refused(file_of("[]"), "an array");
  expect_refused(file_of("3"), "a number");
  expect_refused(file_of("{} x"), "not JSON");
  expect_refused(file_of(std::string(1000, '[')), "an array");
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "{\"a\":";
  expect_refused(file_of(deep), "field 'a'");
  expect_refused(file_of("{\"\xff\":{}}"), "not JSON");
  expect_refused(file_of(R"({"a":1})"), "gives a number for 'a'");
  expect_refused(file_of(R"({"__metadata__":{"a":1}})"), "expected a string");
  expect_refused(file_of(R"({"__metadata__":{"a":"1","a":"2"}})"), "names 'a' twice");
}

TEST(Safetensors, DamagedEntriesAreRefusedWithTheReason) {
  const auto with = [](const std::string& entry) { return file_of("{\"t\":" + entry + "}", std::string(8, 'x')); };
  EXPECT_EQ(refusal_of(with(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})")), "");
  expect_refused(with(R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})"), "unknown dtype 'F31'");
  expect_refused(with(R"({"dtype":4,"shape":[2],"data_offsets":[0,8]})"), "a number");
  expect_refused(with(R"({"shape":[2],"data_offsets":[0,8]})"), "lacks its dtype");
  expect_refused(with(R"({"dtype":"F32","data_offsets":[0,8]})"), "lacks its shape");
  expect_refused(with(R"({"dtype":"F32","shape":[2]})"), "lacks its data_offsets");
  expect_refused(with(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1})"), "field 'x'");
  expect_refused(with(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})"), "field dtype twice");
  expect_refused(with(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), "negative number -2");
  expect_refused(with(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), "where a whole one belongs");
  expect_refused(with(R"({"dtype":"F32","shape":[[2]],"data_offsets":[0,8]})"), "an array");
  expect_refused(with(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"), "1 data_offsets");
  expect_refused(with(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), "take 8 bytes");
  expect_refused(with(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), "take 12 bytes");
  expect_refused(with(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})"), "overflows");
  expect_refused(with(R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]})"), "overflows");
  expect_refused(with(R"({"dtype":"F32","shape":[18446744073709551615,0],"data_offsets":[0,0]})"), "overflows");
  expect_refused(with(R"({"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]})"), "whole one");
}

TEST(Safetensors, OverlapsHolesAndWrongFileLengthsAreRefused) {
  const auto pair = [](int b0, int e0, int b1, int e1, int bytes) {
    const auto entry = [](const char* name, int b, int e) {
      return std::string("\"") + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(e - b) +
             R"(],"data_offsets":[)" + std::to_string(b) + "," + std::to_string(e) + "]}";
    };
    return file_of("{" + entry("a", b0, e0) + "," + entry("b", b1, e1) + "}",
                   std::string(static_cast<std::size_t>(bytes), 'x'));
  };
  EXPECT_EQ(refusal_of(pair(4, 8, 0, 4, 8)), "");
  expect_refused(pair(0, 4, 2, 8, 8), "overlap");
  expect_refused(pair(0, 4, 0, 4, 4), "overlap");
  expect_refused(pair(0, 3, 4, 8, 8), "a hole");
  expect_refused(pair(0, 4, 4, 8, 7), "truncated");
  expect_refused(pair(0, 4, 4, 8, 9), "longer than its header says");
  expect_refused(
      file_of(
          R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
      "names 'a' twice");
}

TEST(Safetensors, EveryTruncationAndManyMutationsGiveAnErrorOrAWholeFile) {
  TemporaryDirectory dir;
  const HostTensor a = counted(DType::f32, {3, 2}), b = counted(DType::i64, {4});
  write_safetensors(dir / "good", std::vector<NamedTensor>{{"model.a", a}, {"model.b", b}}, {{"format", "pt"}});
  const std::string good = read_file(dir / "good");
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_NE(refusal_of(good.substr(0, n)), "") << n;
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    std::string bad = good;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      bad[random() % bad.size()] = static_cast<char>(random());
    }
    write_file(dir / "bad", bad);
    try {
      const SafetensorsFile file(dir / "bad");
      for (const SafetensorsEntry& e : file.entries()) {
        if (e.dtype && e.shape.size() <= 4) file.read(e.name);
      }
    } catch (const Error&) {
    }
  }
}

TEST(Safetensors, AFailedWriteLeavesThePreviousFileWholeAndNothingBeside) {
  TemporaryDirectory dir;
  const HostTensor small = counted(DType::f32, {16});
  write_safetensors(dir / "x", std::vector<NamedTensor>{{"t", small}});
  const std::string before = read_file(dir / "x");
  const HostTensor big = counted(DType::f32, {1 << 16});
  // A limit on file sizes stands in for a full disk: write() comes short in the same way.
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = old;
  limit.rlim_cur = 100'000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::string message;
  try {
    write_safetensors(dir / "x", std::vector<NamedTensor>{{"t", big}});
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::io);
    message = e.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("previous file of that name is unchanged"), std::string::npos) << message;
  EXPECT_EQ(read_file(dir / "x"), before);
  EXPECT_EQ(dir.files(), 1);
}

TEST(Safetensors, ALinkIsWrittenThrough) {
  TemporaryDirectory dir;
  write_safetensors(dir / "real", {});
  std::filesystem::create_symlink("real", dir / "link");
  write_safetensors(dir / "link", std::vector<NamedTensor>{{"t", counted(DType::f32, {1})}});
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
  EXPECT_TRUE(SafetensorsFile(dir / "real").contains("t"));
}

TEST(Safetensors, NamesThatCannotBeStoredAreRefusedBeforeAnythingIsWritten) {
  TemporaryDirectory dir;
  const HostTensor t = counted(DType::f32, {1});
  for (const std::string name : {"", "__metadata__", "\xff\xfe"}) {
    EXPECT_THROW(write_safetensors(dir / "x", std::vector<NamedTensor>{{name, t}}), Error);
  }
  EXPECT_THROW(write_safetensors(dir / "x", std::vector<NamedTensor>{{"t", t}, {"t", t}}), Error);
  EXPECT_EQ(dir.files(), 0);
}

}  // namespace
}  // namespace coda
