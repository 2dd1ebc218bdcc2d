// For tests: the files of tables' checkpoints as earlier versions wrote them, and under another prefix.
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

// Moves the files of the table `name` of the prefix `directory`/`base` into a folder, as in the checkpoints
// of earlier versions.
inline void MoveIntoFolder(Files& files, const std::string& directory, const std::string& base,
                           const std::string& name) {
  const std::string start = base + ".sok-" + name + ".";
  const std::string folder = directory + "/" + base + ".sok/" + name;
  for (const std::string& end : EndsOf(files, directory, start)) {
    const size_t dot = end.find('.');
    const bool in_shard = end.compare(0, 6, "shard-") == 0;
    const std::string parent = in_shard ? folder + "/" + end.substr(0, dot) : folder;
    EXPECT_TRUE(MakeFolders(files, parent).ok());
    const std::string file = in_shard ? end.substr(dot + 1) : end;
    EXPECT_TRUE(files.Rename(directory + "/" + start + end, parent + "/" + file).ok());
  }
}

// Moves all tables of the prefix `directory`/`base` to the prefix `to`.
inline void MoveTables(Files& files, const std::string& directory, const std::string& base,
                       const std::string& to) {
  const std::string start = base + ".sok-";
  for (const std::string& end : EndsOf(files, directory, start)) {
    EXPECT_TRUE(files.Rename(directory + "/" + start + end, to + ".sok-" + end).ok());
  }
}

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TESTING_TABLE_FILES_H_
