#ifndef SOK_CC_TABLE_ROW_CHANGES_H_
#define SOK_CC_TABLE_ROW_CHANGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/table/bitmap.h"

namespace sok {

// The checkpoint that a table's changes count from: its folder, "" where there is none.
struct ChainEnd {
  std::string folder;
  uint32_t manifest_crc32 = 0;
};

// Which rows changed, and which ids went, since the last checkpoint of a chain.
//
// A save has two phases, for whether it succeeds is known only when training goes on again: changes made
// after BeginSave are kept apart, and stay where EndSave forgets the older ones. One save at a time. Not
// thread-safe.
class RowChanges {
 public:
  // Nothing is kept before Start. Starting again changes nothing.
  void Start() { tracks_ = true; }
  bool tracks() const { return tracks_; }
  // Makes room for rows [0, rows) and for `erasures` more erased ids, so that nothing below can fail.
  Status Reserve(int64_t rows, int64_t erasures);

  void MarkChanged(int64_t row) {
    if (tracks_) changed_.Set(row);
  }
  void MarkErased(int64_t row, int64_t id);

  // Since the last save that succeeded.
  bool changed(int64_t row) const { return changed_[row] || saving_[row]; }
  // Ids that went since then, each once, increasing. Some may have come again, some were not there at the
  // last save.
  std::vector<int64_t> erased() const;

  // What changed until now is being written.
  void BeginSave();
  // It was written, and is forgotten; or it was not, and counts as changed again.
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
