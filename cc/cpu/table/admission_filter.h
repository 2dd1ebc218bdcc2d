#ifndef SOK_CC_CPU_TABLE_ADMISSION_FILTER_H_
#define SOK_CC_CPU_TABLE_ADMISSION_FILTER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/store/slabs.h"
#include "cc/cpu/table/bloom_counters.h"
#include "cc/cpu/table/row_directory.h"
#include "cc/table/row_changes.h"
#include "cc/table/table_options.h"

namespace sok {

// The ids that a CounterFilter has seen but not admitted yet, with their counts. Each has a place, a number
// below limit(); places of erased ids are reused.
//
// Thread safety: const members may run at the same time.
class WaitingIds {
 public:
  static constexpr int64_t kAbsent = RowDirectory::kAbsent;

  int64_t size() const { return directory_.size(); }
  int64_t limit() const { return directory_.row_limit(); }
  bool in_use(int64_t place) const { return directory_.in_use(place); }
  // For a place in use: the id, its occurrences so far, and the table's steps() at the last of them.
  int64_t id(int64_t place) const { return directory_.id(place); }
  int64_t count(int64_t place) const { return counts_[place]; }
  int64_t last_step(int64_t place) const { return last_steps_[place]; }
  int64_t bytes() const { return directory_.bytes() + counts_.bytes() + last_steps_.bytes(); }

  // places[i] = the place of ids[i], or kAbsent.
  void Find(Span<const int64_t> ids, Span<int64_t> places) const { directory_.Find(ids, places); }

  // Makes room for `insertions` new ids and `erasures` erasures. ResourceExhausted if memory runs out.
  Status Reserve(int64_t insertions, int64_t erasures);
  // Sets the count and last step of an id, which may be new. The second form needs a Reserve.
  Status Set(int64_t id, int64_t count, int64_t last_step);
  void SetReserved(int64_t id, int64_t count, int64_t last_step);
  // False if the id is not there, or if there is no memory to free its place.
  bool Erase(int64_t id);
  // Erases those of `ids` that are there, in the order of their places: the same places are free then,
  // whatever the order of `ids`. Needs a Reserve.
  void EraseAll(Span<const int64_t> ids);

  // Adds `by` to all last steps, bounded below by 0. Changes nothing else.
  void MoveLastSteps(int64_t by);

  // Starts to track changes. ResourceExhausted if memory runs out; nothing has changed then.
  Status TrackChanges() { return changes_.Start(counts_.rows()); }
  // Changes since the last checkpoint of a chain; see RowChanges. Changed places are those of ids that are
  // new or were counted.
  RowChanges& changes() { return changes_; }
  bool changed(int64_t place) const { return changes_.changed(place); }
  std::vector<int64_t> erased_ids() const { return changes_.erased(); }

 private:
  RowDirectory directory_;
  RowColumn<int64_t> counts_;
  RowColumn<int64_t> last_steps_;
  RowChanges changes_;
};

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

#endif  // SOK_CC_CPU_TABLE_ADMISSION_FILTER_H_
