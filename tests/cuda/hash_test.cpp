// SHA-256 against the examples of FIPS 180-4.
#include "cuda/hash.hpp"

#include <gtest/gtest.h>

#include <string>

namespace coda::cuda {

TEST(Sha256, gives_the_digests_of_the_standard) {
  EXPECT_EQ(Sha256().hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256().add("abc").hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256().add("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq").hex(),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256().add(std::string(1000000, 'a')).hex(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, is_the_same_for_any_division_of_the_bytes) {
  const std::string text(150, 'x');
  for (std::size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(Sha256().add(text.substr(0, cut)).add(text.substr(cut)).hex(), Sha256().add(text).hex());
}

TEST(Sha256, keeps_fields_apart) { EXPECT_NE(Sha256().field("ab").field("c").hex(), Sha256().field("a").field("bc").hex()); }

}  // namespace coda::cuda
