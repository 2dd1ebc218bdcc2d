#ifndef SOK_CC_TABLE_TIER_OPTIONS_H_
#define SOK_CC_TABLE_TIER_OPTIONS_H_

#include <cstdint>
#include <string>

namespace sok {

// A table larger than the memory of its device: its rows and slots are there up to a limit, and the others
// below it: those of a table on a GPU in the host's memory, and if that has a limit too in a file, those of a
// table on a CPU in a file. The results are the same bits as without; checkpoints do not record it.
struct TierOptions {
  int64_t memory_bytes = 0;   // of rows and slots in the device's memory; 0: all
  std::string folder;         // of the file
  bool by_frequency = false;  // rows stay that are used most often, not most recently
  int64_t host_bytes = 0;     // of a table on a GPU, in the host's memory; 0: as many as there are

  bool has_tiers() const { return memory_bytes > 0; }
  bool has_disk() const { return has_tiers() && !folder.empty(); }
};

// What the tiers of a table hold, and what they did since the table was made.
struct TierCounts {
  int64_t rows_in_memory = 0;
  int64_t bytes_on_disk = 0;
  int64_t hits = 0;      // rows that a call needed, and that were in memory
  int64_t misses = 0;    // that were not, new ones among them
  int64_t bytes_up = 0;  // between the memory of the device and what is below it
  int64_t bytes_down = 0;
  int64_t disk_rows = 0;  // that were read from the file
};

}  // namespace sok

#endif  // SOK_CC_TABLE_TIER_OPTIONS_H_
