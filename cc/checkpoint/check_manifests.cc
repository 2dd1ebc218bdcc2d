// Prints whether the engine accepts each of the given manifests, for a test that compares it with the reader
// in Python.
//
// Standard input: for each manifest, its size as 8 little-endian bytes, then its bytes. Standard output: one
// line for each, "good" or the error.
#include <cstdint>
#include <cstdio>
#include <string>

#include "cc/base/printable.h"
#include "cc/checkpoint/manifest.h"

int main() {
  uint64_t size = 0;
  while (std::fread(&size, sizeof(size), 1, stdin) == 1) {
    std::string bytes(size, '\0');
    if (std::fread(bytes.data(), 1, size, stdin) != size) return 1;
    const auto read = sok::ParseManifest(bytes, "manifest.json");
    std::printf("%s\n", read.ok() ? "good" : sok::Printable(read.status().message()).c_str());
  }
  return 0;
}
