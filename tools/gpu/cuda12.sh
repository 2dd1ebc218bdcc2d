#!/usr/bin/env bash
# Puts together a CUDA 12.4 toolkit of what this build needs, and prints its folder, for CUDA_HOME: nvcc from a package of
# Debian 13, headers and the runtime from Python packages of NVIDIA's, which have no nvcc of CUDA 12. 120 MB are downloaded
# the first time; nothing is installed.
#
# Usage: tools/gpu/cuda12.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

# The newest runtime and CCCL of CUDA 12: the packages of 12.4 have no static runtime and an incomplete CCCL.
readonly HEADERS=(nvidia-cuda-nvcc-cu12==12.4.131 nvidia-cuda-runtime-cu12==12.4.127)
readonly NEWEST=(nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-cccl-cu12==12.9.27)
readonly TOOLS=(cudafe++ fatbinary ptxas nvlink)

case "${1:-}" in
  '') ;;
  -h | --help) print_usage ;;
  *) fail "tools/gpu/cuda12.sh has no option $1 (see --help)." ;;
esac

# With its own lists, so that the system stays as it is.
download_nvcc() {  # into the folder $1
  local debian options
  debian="$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 '/debian/$')" ||
    fail "A CUDA 12 toolkit is put together from packages of Debian, which this system does not have: install one, and" \
      "set CUDA_HOME to its folder."
  mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $debian trixie non-free" > "$1/sources.list"
  options=(-o Dir::Etc::SourceList="$1/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$1/lists"
    -o Dir::Cache="$1/cache")
  (cd "$1" && apt-get "${options[@]}" update && apt-get "${options[@]}" download nvidia-cuda-toolkit) > "$1/log" 2>&1 ||
    fail "apt-get could not download nvcc: $(tail -n 3 "$1/log")"
  dpkg-deb -x "$1"/nvidia-cuda-toolkit_*.deb "$1/debian"
}

download_headers() {  # download_headers FOLDER PACKAGE...
  local folder="$1"
  shift
  "$(sok_python)" -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder" "$@" >&2 ||
    fail "pip could not download $*."
}

put_together() {  # put_together TOOLKIT DOWNLOADS
  local toolkit="$1" debian="$2/debian/usr" headers="$2/headers/nvidia" newest="$2/newest/nvidia"
  mkdir -p "$toolkit/bin" "$toolkit/nvvm/bin" "$toolkit/include" "$toolkit/lib64"
  cp "${TOOLS[@]/#/$debian/bin/}" "$debian/lib/nvidia-cuda-toolkit/bin/nvcc" "$toolkit/bin/"
  cp "$debian/lib/nvidia-cuda-toolkit/bin/cicc" "$toolkit/nvvm/bin/"
  cp -r "$debian/lib/nvidia-cuda-toolkit/libdevice" "$toolkit/nvvm/"
  cp -r "$headers"/cuda_nvcc/include/. "$headers"/cuda_runtime/include/. "$newest"/cuda_cccl/include/. "$toolkit/include/"
  cp "$newest"/cuda_runtime/lib/libcudart_static.a "$toolkit/lib64/"
  # Where nvcc finds these, as in NVIDIA's own toolkits.
  printf '%s\n' 'TOP = $(_HERE_)/..' 'NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice' 'PATH += $(TOP)/nvvm/bin:$(_HERE_):' \
    'INCLUDES += "-I$(TOP)/include" $(_SPACE_)' > "$toolkit/bin/nvcc.profile"
}

toolkit="$SOK_HOME/cuda-12.4"
if [ ! -e "$toolkit" ]; then
  "$SOK_ROOT/tools/setup.sh"
  say "A CUDA 12.4 toolkit, into $toolkit"
  mkdir -p "$SOK_HOME"
  downloads="$(mktemp -d)" made="$(mktemp -d "$toolkit.XXXXXX")"
  trap 'rm -rf "$downloads" "$made"' EXIT
  download_nvcc "$downloads"
  download_headers "$downloads/headers" "${HEADERS[@]}"
  download_headers "$downloads/newest" "${NEWEST[@]}"
  put_together "$made" "$downloads"
  chmod 755 "$made"
  # Another set-up may have been faster.
  mv -T "$made" "$toolkit" 2> /dev/null || [ -e "$toolkit" ]
fi
printf '%s\n' "$toolkit"
