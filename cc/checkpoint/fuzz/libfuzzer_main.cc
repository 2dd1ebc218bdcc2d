// The entry point that libFuzzer calls; tools/fuzz.sh builds it.
#include "cc/checkpoint/fuzz/read_checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sok::ReadFuzzedCheckpoint(data, size);
  return 0;
}
