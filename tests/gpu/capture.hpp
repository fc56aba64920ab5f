// A CUDA graph of what a function enqueues, on a stream of its own.
#pragma once
#include <functional>

#include "cuda/driver.hpp"

namespace coda::test {

struct Capture {
  explicit Capture(const std::function<void(cuda::Stream)>& body) : stream(0) {
    cuda::ContextScope scope(0);
    CODA_CUDA(cuStreamBeginCapture, stream, 0);
    body(stream);
    CODA_CUDA(cuStreamEndCapture, stream, &graph);
    CODA_CUDA(cuGraphInstantiateWithFlags, &exec, graph, 0ull);
  }
  ~Capture() {
    cuda::driver().cuGraphExecDestroy(exec);
    cuda::driver().cuGraphDestroy(graph);
  }
  void replay() {
    cuda::ContextScope scope(0);
    CODA_CUDA(cuGraphLaunch, exec, stream);
  }
  cuda::OwnedStream stream;
  cuda::Graph graph = nullptr;
  cuda::GraphExec exec = nullptr;
};

}  // namespace coda::test
