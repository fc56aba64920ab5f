// Tensor views: extents, strides, element access, and the words used for them in messages.
#include "coda/tensor.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "coda/error.hpp"

namespace coda {
namespace {

TEST(Tensor, ContiguousIsRowMajor) {
  const std::int64_t shape[] = {2, 3, 5};
  const Tensor t = Tensor::contiguous(nullptr, DType::bf16, shape);
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.stride[0], 15);
  EXPECT_EQ(t.stride[1], 5);
  EXPECT_EQ(t.stride[2], 1);
  EXPECT_EQ(t.numel(), 30);
}

TEST(Tensor, ScalarHasOneElement) { EXPECT_EQ(Tensor::contiguous(nullptr, DType::f32, {}).numel(), 1); }

TEST(Tensor, ContiguousRefusesWhatIsNoShape) {
  const std::int64_t negative[] = {2, -1};
  EXPECT_THROW(Tensor::contiguous(nullptr, DType::f32, negative), Error);
  const std::int64_t overflow[] = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  EXPECT_THROW(Tensor::contiguous(nullptr, DType::f32, overflow), Error);
  const std::int64_t deep[] = {1, 1, 1, 1, 1};
  EXPECT_THROW(Tensor::contiguous(nullptr, DType::f32, deep), Error);
}

TEST(Tensor, OverflowIsRefusedEvenBesideAZeroExtent) {
  const std::int64_t shape[] = {0, std::int64_t{1} << 40, std::int64_t{1} << 40};
  EXPECT_THROW(Tensor::contiguous(nullptr, DType::f32, shape), Error);
}

TEST(Tensor, TransposedExchangesExtentsAndStrides) {
  HostTensor a(DType::f32, {2, 3});
  for (int i = 0; i < 6; ++i) a.as<float>()[i] = static_cast<float>(i);
  const Tensor t = a.view().transposed();
  EXPECT_EQ(t.shape[0], 3);
  EXPECT_EQ(t.shape[1], 2);
  const double expected[] = {0, 3, 1, 4, 2, 5};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(load(t, i), expected[i]);
  EXPECT_THROW(HostTensor(DType::f32, {4}).view().transposed(), Error);
}

TEST(HostTensor, IsAlignedAndZero) {
  HostTensor t(DType::bf16, {7, 9});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.view().data) % 64, 0u);
  for (int i = 0; i < 63; ++i) EXPECT_EQ(t.as<std::uint16_t>()[i], 0);
}

TEST(HostTensor, TakesZeroExtents) {
  HostTensor t(DType::f32, {0, 8});
  EXPECT_EQ(t.numel(), 0);
}

TEST(HostTensor, RefusesByteCountsThatOverflow) {
  EXPECT_THROW(HostTensor(DType::f64, {std::int64_t{1} << 61}), Error);
  try {
    HostTensor(DType::f32, {3, -2});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::shape);
    EXPECT_NE(std::string(e.what()).find("-2"), std::string::npos) << e.what();
  }
}

TEST(HostTensor, RefusesMoreMemoryThanThereIs) {
  EXPECT_THROW(HostTensor(DType::f32, {std::int64_t{1} << 55}), std::bad_alloc);
}

TEST(Access, RoundTripsEveryDType) {
  for (const DType t :
       {DType::f32, DType::bf16, DType::f16, DType::e4m3, DType::e5m2, DType::i32, DType::i64, DType::f64}) {
    HostTensor x(t, {3});
    store(x, 1, -6.0);
    EXPECT_EQ(load(x, 1), -6.0) << name_of(t);
    EXPECT_EQ(load(x, 0), 0.0);
    EXPECT_EQ(load(x, 2), 0.0);
  }
}

TEST(Access, FollowsStrides) {
  float data[12] = {};
  Tensor t;
  t.data = data;
  t.rank = 2;
  t.shape = {2, 2};
  t.stride = {6, 3};
  store(t, 3, 5.0);
  EXPECT_EQ(data[9], 5.0F);
  t.stride = {0, 3};  // a broadcast row
  data[3] = 7.0F;
  EXPECT_EQ(load(t, 1), 7.0);
  EXPECT_EQ(load(t, 3), 7.0);
}

TEST(Access, RoundsIntegersToNearestEvenAndSaturates) {
  HostTensor x(DType::i32, {1});
  for (const auto& [in, out] :
       {std::pair{2.5, 2.0}, {3.5, 4.0}, {-2.5, -2.0}, {1e300, 2147483647.0}, {-1e300, -2147483648.0}}) {
    store(x, 0, in);
    EXPECT_EQ(load(x, 0), out);
  }
  EXPECT_THROW(store(x, 0, std::nan("")), Error);
  HostTensor y(DType::i64, {1});
  store(y, 0, 1e300);
  EXPECT_EQ(*y.as<std::int64_t>(), std::numeric_limits<std::int64_t>::max());
}

TEST(Access, RefusesAnIndexOutOfRangeAndDeviceMemory) {
  HostTensor x(DType::f32, {2, 2});
  EXPECT_THROW(load(x, 4), Error);
  EXPECT_THROW(store(x, -1, 0.0), Error);
  Tensor cuda = x;
  cuda.device.type = DeviceType::cuda;
  EXPECT_THROW(load(cuda, 0), Error);
}

TEST(Describe, NamesDTypeExtentsAndUnusualStrides) {
  HostTensor x(DType::bf16, {512, 2048});
  EXPECT_EQ(describe(x), "bf16[512, 2048]");
  EXPECT_EQ(describe(x.view().transposed()), "bf16[2048, 512] with strides [1, 2048]");
  EXPECT_EQ(describe(HostTensor(DType::f32, {})), "f32[]");
  Tensor cuda = x;
  cuda.device = {DeviceType::cuda, 1};
  EXPECT_EQ(describe(cuda), "bf16[512, 2048] on cuda:1");
}

TEST(Describe, IgnoresTheStrideOfAnExtentOfOne) {
  HostTensor x(DType::f32, {1, 8});
  Tensor t = x;
  t.stride[0] = 1234;
  EXPECT_EQ(describe(t), "f32[1, 8]");
}

}  // namespace
}  // namespace coda
