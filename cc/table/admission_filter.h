#ifndef SOK_CC_TABLE_ADMISSION_FILTER_H_
#define SOK_CC_TABLE_ADMISSION_FILTER_H_

#include <cstdint>
#include <optional>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/table/bloom_counters.h"
#include "cc/table/table_options.h"
#include "cc/table/waiting_ids.h"

namespace sok {

// Decides, as DeepRec's CounterFilter and CBFFilter do, which of the ids that have no row get one: those that
// have occurred filter_freq times, the present lookup included. Counts the occurrences of the others.
//
// A lookup asks for totals, makes room, and commits once nothing else can fail. The counts before the lookup
// decide about all its ids, so the order of its ids does not matter, also where they share Bloom counters.
//
// What happens once a row goes: a CounterFilter counts its id from 0 again; a Bloom filter forgets nothing
// and admits it at once.
class AdmissionFilter {
 public:
  // The options were checked. ResourceExhausted where memory does not suffice.
  Status Init(const Admission& admission);

  // totals[i] = the occurrences of ids[i], which has no row: the counts[i] of this lookup, and all before.
  void Total(Span<const int64_t> ids, Span<const int64_t> counts, Span<int64_t> totals) const;
  bool Admits(int64_t total) const { return total >= admission_.filter_freq; }
  // Makes room for Commit. ResourceExhausted where memory does not suffice.
  Status Reserve(int64_t ids);
  // The lookup happened, at this step of the table: ids that were admitted wait no longer.
  void Commit(Span<const int64_t> ids, Span<const int64_t> counts, Span<const int64_t> totals, int64_t step);

  // Null where it is not of the filter's kind.
  WaitingIds* waiting() { return waiting_.has_value() ? &*waiting_ : nullptr; }
  const WaitingIds* waiting() const { return waiting_.has_value() ? &*waiting_ : nullptr; }
  BloomCounters* bloom() { return bloom_.has_value() ? &*bloom_ : nullptr; }
  const BloomCounters* bloom() const { return bloom_.has_value() ? &*bloom_ : nullptr; }
  int64_t bytes() const;

 private:
  Admission admission_;
  std::optional<WaitingIds> waiting_;
  std::optional<BloomCounters> bloom_;
};

}  // namespace sok

#endif  // SOK_CC_TABLE_ADMISSION_FILTER_H_
