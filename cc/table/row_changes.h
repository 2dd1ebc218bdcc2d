#ifndef SOK_CC_TABLE_ROW_CHANGES_H_
#define SOK_CC_TABLE_ROW_CHANGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/table/bitmap.h"

namespace sok {

// The checkpoint since which a table's changes are tracked.
struct ChainEnd {
  std::string folder;  // the table's path in it (cc/checkpoint/checkpoint_path.h); "" if there is none
  uint32_t manifest_crc32 = 0;
};

// Which rows changed, and which ids were erased, since the last checkpoint of a chain.
//
// A save has two phases, because training continues before it is known whether the save succeeds: changes
// after BeginSave are kept apart, and remain when EndSave forgets the older ones. One save at a time. Not
// thread-safe.
class RowChanges {
 public:
  // Starts to track changes, and makes room for rows [0, rows). A second call only makes room. Before the
  // first, the other calls do nothing. ResourceExhausted if memory runs out; nothing has changed then.
  Status Start(int64_t rows);
  bool tracks() const { return tracks_; }
  // Makes room for rows [0, rows) and for `erasures` more erased ids, so that nothing below can fail.
  Status Reserve(int64_t rows, int64_t erasures);

  void MarkChanged(int64_t row) {
    if (tracks_) changed_.Set(row);
  }
  void MarkErased(int64_t row, int64_t id);

  // Whether the row has changed since the last successful save.
  bool changed(int64_t row) const { return changed_[row] || saving_[row]; }
  // Ids erased since then, each once, in increasing order. Some may have been inserted again, or were not
  // there at the last save.
  std::vector<int64_t> erased() const;

  // Starts a save of the changes so far.
  void BeginSave();
  // Ends it: forgets these changes if `ok`, else keeps them for the next save.
  void EndSave(bool ok);

 private:
  bool tracks_ = false;
  Bitmap changed_;
  Bitmap saving_;
  std::vector<int64_t> erased_;
  std::vector<int64_t> saving_erased_;
};

}  // namespace sok

#endif  // SOK_CC_TABLE_ROW_CHANGES_H_
