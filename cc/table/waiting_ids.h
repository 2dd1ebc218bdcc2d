#ifndef SOK_CC_TABLE_WAITING_IDS_H_
#define SOK_CC_TABLE_WAITING_IDS_H_

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/store/row_column.h"
#include "cc/table/row_changes.h"
#include "cc/table/row_directory.h"

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

}  // namespace sok

#endif  // SOK_CC_TABLE_WAITING_IDS_H_
