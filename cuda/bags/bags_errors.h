// The errors of the inputs of lookups, as text.
#ifndef SOK_CUDA_BAGS_BAGS_ERRORS_H_
#define SOK_CUDA_BAGS_BAGS_ERRORS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/lookup_input.h"
#include "cuda/base/round_trip.h"

namespace sok {

// The status of a BagErrorWord: OK for kNone, else the error of cc/group/lookup_errors.h. Fetches the wrong
// values, one or two, from the inputs, which are on the device, and waits for each.
Status StatusOfBagError(cudaStream_t stream, RoundTrip* round_trip, uint64_t word,
                        Span<const std::string> tables, Span<const LookupSpec> specs,
                        Span<const LookupInput> inputs);

}  // namespace sok

#endif  // SOK_CUDA_BAGS_BAGS_ERRORS_H_
