// The disk cache under many processes and threads, damage, and directories it can't use.
#include "cuda/cache.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "coda/warning.hpp"

namespace coda::cuda {
namespace {

namespace fs = std::filesystem;

struct CacheTest : ::testing::Test {
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "coda-cache-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root = pattern;
    previous = set_warning_handler([](const std::string&) {});
  }
  void TearDown() override {
    set_warning_handler(previous);
    std::error_code ec;
    fs::permissions(root, fs::perms::owner_all, ec);
    fs::remove_all(root, ec);
  }
  std::string directory() const { return (root / "cache").string(); }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& e : fs::directory_iterator(directory())) found.push_back(e.path());
    return found;
  }
  // Runs `body` in a child process; true where it returns true. As root, the child first becomes another user, for
  // whom permissions count.
  template <class F> static bool in_child(F body, bool as_other_user = false) {
    const pid_t child = fork();
    if (child == 0) {
      if (as_other_user && geteuid() == 0 && seteuid(65534) != 0) _exit(3);
      _exit(body() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  fs::path root;
  WarningHandler previous = nullptr;
};

std::string payload_of(int i) {
  std::string s(static_cast<std::size_t>(20000 + i), '\0');
  for (std::size_t j = 0; j < s.size(); ++j) s[j] = static_cast<char>(j * 7 + static_cast<std::size_t>(i));
  return s;
}

TEST_F(CacheTest, gives_back_what_was_written_in_this_and_in_a_later_process) {
  DiskCache first(directory());
  EXPECT_EQ(first.read("k", "cubin"), std::nullopt);
  first.write("k", "cubin", payload_of(1));
  EXPECT_EQ(first.read("k", "cubin"), payload_of(1));
  EXPECT_EQ(first.read("k", "tuned"), std::nullopt);
  EXPECT_EQ(DiskCache(directory()).read("k", "cubin"), payload_of(1));
  first.write("k", "cubin", "");
  EXPECT_EQ(DiskCache(directory()).read("k", "cubin"), "");
  EXPECT_TRUE(first.warnings().empty());
}

TEST_F(CacheTest, leaves_no_temporary_files) {
  DiskCache c(directory());
  for (int i = 0; i < 5; ++i) c.write(fmt::format("k{}", i), "cubin", payload_of(i));
  EXPECT_EQ(files().size(), 5u);
}

TEST_F(CacheTest, finds_damage_of_every_kind_and_takes_the_entry_for_absent) {
  const std::string whole = payload_of(3);
  auto damaged = [&](auto damage) {
    DiskCache c(directory());
    c.write("k", "cubin", whole);
    const fs::path file = files().at(0);
    damage(file);
    EXPECT_EQ(DiskCache(directory()).read("k", "cubin"), std::nullopt);
    EXPECT_FALSE(fs::exists(file)) << "a damaged entry is removed";
    c.write("k", "cubin", whole);
    EXPECT_EQ(DiskCache(directory()).read("k", "cubin"), whole) << "and can be made again";
  };
  damaged([](const fs::path& f) { fs::resize_file(f, 0); });
  damaged([](const fs::path& f) { fs::resize_file(f, 10); });
  damaged([](const fs::path& f) { fs::resize_file(f, fs::file_size(f) - 1); });
  damaged([](const fs::path& f) { std::ofstream(f, std::ios::app) << "x"; });
  damaged([](const fs::path& f) {
    std::fstream s(f, std::ios::in | std::ios::out | std::ios::binary);
    s.seekp(5000);
    s.put('!');
  });
  damaged([](const fs::path& f) { std::ofstream(f) << "another program's file\n"; });
}

TEST_F(CacheTest, is_whole_under_many_processes_and_threads_that_write_and_read_the_same_keys) {
  constexpr int processes = 6, threads = 4, keys = 5, rounds = 8;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      DiskCache cache(directory());
      std::atomic<bool> ok{true};
      std::vector<std::thread> pool;
      for (int t = 0; t < threads; ++t)
        pool.emplace_back([&, t] {
          for (int r = 0; r < rounds; ++r) {
            const int i = (r + t) % keys;
            const std::string key = fmt::format("key{}", i);
            if (auto got = cache.read(key, "cubin"); got && *got != payload_of(i)) ok = false;
            cache.write(key, "cubin", payload_of(i));
            if (auto got = cache.read(key, "cubin"); got && *got != payload_of(i)) ok = false;
          }
        });
      for (auto& t : pool) t.join();
      _exit(ok && cache.warnings().empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t c : children) {
    int status = 0;
    waitpid(c, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  DiskCache cache(directory());
  for (int i = 0; i < keys; ++i) EXPECT_EQ(cache.read(fmt::format("key{}", i), "cubin"), payload_of(i));
  EXPECT_EQ(files().size(), static_cast<std::size_t>(keys));
}

TEST_F(CacheTest, survives_a_process_killed_while_it_writes) {
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      DiskCache cache(directory());
      for (int i = 0;; ++i) cache.write("key", "cubin", payload_of(i % 2));
    }
    usleep(20000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const auto got = DiskCache(directory()).read("key", "cubin");
    if (got) {
      EXPECT_TRUE(*got == payload_of(0) || *got == payload_of(1));
    }
  }
}

// Writing and reading work, from memory, and one warning says why.
bool works_in_memory(const std::string& dir, const char* expected) {
  DiskCache c(dir);
  c.write("a", "cubin", "one");
  c.write("b", "cubin", "two");
  const auto w = c.warnings();
  return c.read("a", "cubin") == "one" && c.read("b", "cubin") == "two" && w.size() == 1 && w[0].find(expected) != std::string::npos;
}

TEST_F(CacheTest, warns_once_and_stays_in_memory_where_the_directory_is_read_only) {
  fs::create_directory(directory());
  if (geteuid() == 0) {
    ASSERT_EQ(chown(directory().c_str(), 65534, 65534), 0);
  }
  fs::permissions(root, fs::perms::all);
  fs::permissions(directory(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_TRUE(in_child([&] { return works_in_memory(directory(), "can't be written"); }, true));
  fs::permissions(directory(), fs::perms::owner_all);
}

TEST_F(CacheTest, warns_once_and_stays_in_memory_where_the_directory_cannot_be_made) {
  std::ofstream(root / "file") << "x";
  EXPECT_TRUE(works_in_memory((root / "file" / "cache").string(), "can't be made"));
  EXPECT_TRUE(works_in_memory((root / "file").string(), "is not a directory"));
  EXPECT_TRUE(works_in_memory("", "no cache directory"));
}

TEST_F(CacheTest, does_not_trust_a_directory_of_another_user_or_one_that_anyone_can_write) {
  if (geteuid() == 0) {
    fs::create_directory(directory());
    ASSERT_EQ(chown(directory().c_str(), 65534, 65534), 0);
    EXPECT_TRUE(works_in_memory(directory(), "belongs to user 65534"));
  }
  const std::string open = (root / "open").string();
  fs::create_directory(open);
  fs::permissions(open, fs::perms::all);
  EXPECT_TRUE(works_in_memory(open, "can be written by anyone"));
}

TEST_F(CacheTest, goes_to_the_directory_the_environment_names) {
  auto in = [](const char* own, const char* xdg, const char* home) {
    auto set = [](const char* name, const char* v) { v ? setenv(name, v, 1) : unsetenv(name); };
    set("CODA_CACHE_DIR", own);
    set("XDG_CACHE_HOME", xdg);
    set("HOME", home);
    return default_cache_directory();
  };
  EXPECT_TRUE(in_child([&] {
    return in("/a/b", "/x", "/h") == "/a/b" && in(nullptr, "/x", "/h") == "/x/coda" && in("", "relative", "/h") == "/h/.cache/coda" &&
           in(nullptr, nullptr, nullptr).empty();
  }));
}

}  // namespace
}  // namespace coda::cuda
