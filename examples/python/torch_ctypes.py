"""A fused product on PyTorch's CUDA tensors through CODA's C interface and nothing else: the norm-scaled, gated first half
of a Llama feed-forward, z = rstd * (h @ W.T) and y = silu(gate) * up, in one launch on PyTorch's current stream.

    CODA_LIBRARY=build/release/libcoda.so python3 examples/python/torch_ctypes.py
"""
import ctypes
import os

import torch

coda = ctypes.CDLL(os.environ.get("CODA_LIBRARY", "libcoda.so"))
coda.coda_last_error.restype = ctypes.c_char_p


class Tensor(ctypes.Structure):  # coda_tensor, which is DLPack's DLTensor
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


DTYPES = {torch.float32: (2, 32), torch.bfloat16: (4, 16), torch.float16: (2, 16), torch.int32: (0, 32), torch.int64: (0, 64)}


def view(t):
    """A coda_tensor of a torch tensor. It keeps its shape arrays; the memory stays torch's."""
    code, bits = DTYPES[t.dtype]
    dims = lambda values: (ctypes.c_int64 * max(1, len(values)))(*values)
    cuda = t.device.type == "cuda"
    return Tensor(t.data_ptr(), 2 if cuda else 1, t.device.index or 0 if cuda else 0, t.dim(), code, bits, 1, dims(t.shape), dims(t.stride()), 0)


def ok(status):
    if status:
        raise RuntimeError(coda.coda_last_error().decode())


class Kernel:
    """A program ready for CUDA tensors: call it with tensors by name; outputs left out are not computed."""

    def __init__(self, name):
        program = ctypes.c_void_p()
        ok(coda.coda_program_load(name.encode(), None, 0, ctypes.byref(program)))
        self.program, self.kernel = program, ctypes.c_void_p()
        ok(coda.coda_kernel_create(program, None, ctypes.byref(self.kernel)))
        self.count = coda.coda_program_slot_count(program)

    def __call__(self, **tensors):
        slots = (ctypes.POINTER(Tensor) * self.count)()
        views = {name: view(t) for name, t in tensors.items()}
        for name, v in views.items():
            index = coda.coda_program_find_slot(self.program, name.encode())
            if index < 0:
                raise TypeError(f"the program has no argument {name!r}")
            slots[index] = ctypes.pointer(v)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        ok(coda.coda_kernel_launch(self.kernel, slots, self.count, stream, None, ctypes.c_size_t(0)))


def main():
    torch.manual_seed(0)
    tokens, width, hidden = 4096, 2048, 8192
    h = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(2 * hidden, width, device="cuda", dtype=torch.bfloat16) * width**-0.5
    rstd = torch.rand(tokens, device="cuda") + 0.5
    z = torch.empty(tokens, 2 * hidden, device="cuda", dtype=torch.bfloat16)
    y = torch.empty(tokens, hidden, device="cuda", dtype=torch.bfloat16)

    norm_swiglu = Kernel("norm_swiglu")
    norm_swiglu(A=h, B=weight, rstd=rstd, z=z, y=y)

    exact = rstd[:, None].double() * (h.double() @ weight.double().T)
    gate, up = exact.chunk(2, dim=1)
    expected = torch.nn.functional.silu(gate) * up
    for name, got, want in (("z", z, exact), ("y", y, expected)):
        error = ((got.double() - want).norm() / want.norm()).item()
        print(f"{name}: relative error {error:.2e}")
        assert error < 4e-3, name


if __name__ == "__main__":
    main()
