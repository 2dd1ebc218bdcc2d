// The errors of a lookup's ids, bags and weights, with the same messages for all engines.
#ifndef SOK_CC_LOOKUP_LOOKUP_ERRORS_H_
#define SOK_CC_LOOKUP_LOOKUP_ERRORS_H_

#include <cstdint>
#include <string>

#include "cc/base/status.h"
#include "cc/lookup/lookup_input.h"

namespace sok {

// Every message names the embedding variable.
template <typename... Args>
std::string LookupMessage(const std::string& variable, const Args&... args) {
  return StrCat("Lookup in embedding variable '", variable, "': ", args...);
}

// The index of sparse id `i` has `row` in its first column.
inline Status IndexBeyondBags(const std::string& variable, int64_t i, int64_t row, int64_t num_bags) {
  return InvalidArgument(
      LookupMessage(variable, "index ", i, " of the sparse ids is in row ", row, " of ", num_bags));
}

inline Status RowSplitsBeginWith(const std::string& variable, int64_t first) {
  return InvalidArgument(LookupMessage(variable, "row_splits begin with ", first, ", not 0"));
}

inline Status RowSplitsFall(const std::string& variable, int64_t from, int64_t to, int64_t position) {
  return InvalidArgument(
      LookupMessage(variable, "row_splits fall from ", from, " to ", to, " at position ", position));
}

inline Status RowSplitsEndWith(const std::string& variable, int64_t last, int64_t num_ids) {
  return InvalidArgument(
      LookupMessage(variable, "row_splits end with ", last, ", but there are ", num_ids, " ids"));
}

// Element `at` of the flattened indices, or of the row splits, differs between the weights and the ids.
inline Status WeightsAtOtherPlaces(const std::string& variable, IdLayout layout, int64_t at,
                                   int64_t of_weights, int64_t of_ids) {
  return InvalidArgument(LookupMessage(variable, "the weights are not at the places of the ids: element ", at,
                                       " of their ", layout == IdLayout::kSparse ? "indices" : "row_splits",
                                       " is ", of_weights, ", but that of the ids is ", of_ids));
}

inline Status WeightNotFinite(const std::string& variable, int64_t i, float weight) {
  return InvalidArgument(LookupMessage(variable, "weight ", i, " is ", weight));
}

// The ids that a group looks up in one table, and those that all ranks request of it, are numbered by 32-bit
// integers; on a GPU, those of all tables of a group together.
inline Status TooManyIds(const std::string& variable, int64_t ids) {
  return InvalidArgument(LookupMessage(variable, ids, " ids are too many for one step"));
}

// The numbers of bags and ids, and so the memory for them, depend on the user's input.
inline Status NoMemoryForBags(const std::string& variable) {
  return ResourceExhausted(LookupMessage(variable, "not enough memory for its bags and ids"));
}

}  // namespace sok

#endif  // SOK_CC_LOOKUP_LOOKUP_ERRORS_H_
