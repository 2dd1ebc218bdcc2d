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

// Decides which ids without a row get one, as DeepRec's CounterFilter and CBFFilter do: those that have
// occurred filter_freq times, including the present lookup. Counts the occurrences of the others.
//
// A lookup calls Total, Reserve and, once nothing else can fail, Commit. The counts before the lookup decide
// for all of its ids, so the order of its ids does not matter, even if they share Bloom counters.
//
// After a row is evicted, a CounterFilter counts its id from 0 again; a Bloom filter forgets nothing and
// admits the id at once.
class AdmissionFilter {
 public:
  // `admission` must have passed CheckOptions. ResourceExhausted if memory runs out.
  Status Init(const Admission& admission);

  // totals[i] = the occurrences of ids[i], which has no row: counts[i] of this lookup plus all earlier ones.
  void Total(Span<const int64_t> ids, Span<const int64_t> counts, Span<int64_t> totals) const;
  bool Admits(int64_t total) const { return total >= admission_.filter_freq; }
  // Whether an id that is admitted in this lookup still reads as the default value in it; the id had occurred
  // `before` times before.
  bool ReadsDefault(int64_t before) const {
    return admission_.before_lookup && before < admission_.filter_freq;
  }
  // Makes room for Commit of these ids. ResourceExhausted if memory runs out.
  Status Reserve(Span<const int64_t> ids);
  // Records the lookup at this step of the table, and removes admitted ids from the waiting ones.
  void Commit(Span<const int64_t> ids, Span<const int64_t> counts, Span<const int64_t> totals, int64_t step);

  // Null if the filter is of another kind.
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
