#!/bin/bash
# Packs the GPU suite, the GPU benchmark and the coda command, with every library that a plain Linux lacks, into one
# archive for a GPU machine that has neither compilers nor a network:
#   tools/pack_gpu.sh ARCHIVE.tar.xz [BUILD_DIR]      here
#   mkdir d && tar xf ARCHIVE.tar.xz -C d && d/test-gpu    there (d/bench-gpu, d/coda)
# The machine needs the NVIDIA driver and NVRTC; bench-gpu also cuBLASLt. Both are looked for in Python's packages too.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
archive=$(realpath -m "${1:?usage: tools/pack_gpu.sh ARCHIVE.tar.xz [BUILD_DIR]}")
build=${2:-$root/build/release}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/lib"

programs=(test_gpu bench_gpu coda)
for program in "${programs[@]}"; do
  cp "$build/$program" "$work/bin/"
  # The C and C++ run times are every Linux's own; newer ones run older programs, not the reverse.
  ldd "$build/$program" | awk '$3 ~ /^\// {print $1, $3}' |
    grep -Ev '^(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|ld-linux[^ ]*)\.so' |
    while read -r name path; do [ -e "$work/lib/$name" ] || cp -L "$path" "$work/lib/$name"; done
done
strip "$work"/bin/* "$work"/lib/*

for program in "${programs[@]}"; do
  cat > "$work/${program//_/-}" <<END
#!/bin/bash
# Finds NVRTC and cuBLASLt where the loader or Python's packages have them, then runs $program.
here=\$(cd "\$(dirname "\${BASH_SOURCE[0]}")" && pwd)
nvidia=\$(python3 -c 'import nvidia, glob; print(":".join(sorted(g for p in nvidia.__path__ for g in glob.glob(p + "/cu13/lib") + glob.glob(p + "/*/lib"))))' 2>/dev/null || true)
export LD_LIBRARY_PATH="\$here/lib:\${nvidia:+\$nvidia:}/usr/local/cuda/lib64\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
exec "\$here/bin/$program" "\$@"
END
  chmod +x "$work/${program//_/-}"
done

mkdir -p "$(dirname "$archive")"
XZ_OPT=-1 tar cJf "$archive" -C "$work" .
ls -l "$archive"
