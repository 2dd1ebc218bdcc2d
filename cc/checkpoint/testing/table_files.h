// For tests: the files of a checkpoint, under another prefix, or removed.
#ifndef SOK_CC_CHECKPOINT_TESTING_TABLE_FILES_H_
#define SOK_CC_CHECKPOINT_TESTING_TABLE_FILES_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/checkpoint/files.h"

namespace sok {

// The ends of the names that begin with `start` in the folder `directory`.
inline std::vector<std::string> EndsOf(Files& files, const std::string& directory, const std::string& start) {
  std::vector<std::string> names;
  std::vector<std::string> ends;
  EXPECT_TRUE(files.List(directory, &names).ok());
  for (const std::string& name : names) {
    if (name.compare(0, start.size(), start) == 0) ends.push_back(name.substr(start.size()));
  }
  return ends;
}

// Renames the files of the checkpoint with the prefix `from`.
inline void MoveCheckpoint(Files& files, const std::string& from, const std::string& to) {
  const size_t slash = from.rfind('/');
  for (const std::string& end : EndsOf(files, from.substr(0, slash), from.substr(slash + 1) + ".")) {
    EXPECT_TRUE(files.Rename(from + "." + end, to + "." + end).ok());
  }
}

inline void RemoveCheckpoint(Files& files, const std::string& prefix) {
  const size_t slash = prefix.rfind('/');
  for (const std::string& end : EndsOf(files, prefix.substr(0, slash), prefix.substr(slash + 1) + ".")) {
    EXPECT_TRUE(files.Remove(prefix + "." + end).ok());
  }
}

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TESTING_TABLE_FILES_H_
