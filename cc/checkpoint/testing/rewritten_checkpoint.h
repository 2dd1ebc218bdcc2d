// For tests: the tensors of a checkpoint, to change and write again.
#ifndef SOK_CC_CHECKPOINT_TESTING_REWRITTEN_CHECKPOINT_H_
#define SOK_CC_CHECKPOINT_TESTING_REWRITTEN_CHECKPOINT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/crc32c.h"
#include "cc/checkpoint/array_file.h"
#include "cc/checkpoint/files.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/saved_checkpoint.h"

namespace sok {

// For tests: the files of a checkpoint, under another prefix, or removed.

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

// The array of some bytes, with right checksums.
inline SavedArray ArrayOf(const ArrayType& type, const std::string& bytes) {
  SavedArray array{type, {}};
  for (size_t at = 0; at < bytes.size(); at += kBlockBytes) {
    array.crc32c.push_back(Crc32c(std::string_view(bytes).substr(at, kBlockBytes)));
  }
  return array;
}

class RewrittenCheckpoint {
 public:
  struct Array {
    ArrayType type;
    std::string bytes;
  };
  std::map<std::string, std::string> strings;
  std::map<std::string, Array> arrays;

  RewrittenCheckpoint(Files& files, const std::string& prefix) : files_(files), prefix_(prefix) {
    const auto checkpoint = SavedCheckpoint::Open(files, prefix).value();
    for (const auto& [name, entry] : checkpoint->index().entries) {
      const TensorPlace place = checkpoint->Find(name).value();
      if (place.dtype == kStringDtype) {
        strings[name] = checkpoint->ReadString(name).value();
        continue;
      }
      Array& array = arrays[name];
      array.type = {place.dtype, place.shape};
      array.bytes.resize(static_cast<size_t>(place.bytes));
      const auto data = checkpoint->Data(place.shard).value();
      EXPECT_TRUE(data->ReadAt(place.offset, array.bytes.data(), place.bytes).ok());
    }
  }

  // A table as its entries say, without places.
  Manifest ReadTable(const std::string& name) const {
    ManifestReader reader("m");
    int shards = 0;
    EXPECT_TRUE(reader.ReadTable(strings.at(name), name, &shards).ok());
    for (int shard = 0; shard < shards; ++shard) {
      EXPECT_TRUE(reader.AddShard(strings.at(ShardEntry(name, shard))).ok());
    }
    return reader.Finish().value();
  }
  void SetTable(const std::string& name, const Manifest& manifest) {
    strings[name] = EncodeTable(manifest);
    int shard = 0;
    for (const SavedShard& saved : manifest.shards) strings[ShardEntry(name, shard++)] = EncodeShard(saved);
  }
  // Replaces an array of a shard, which the manifest then describes.
  void SetArray(Manifest* manifest, const std::string& table, int shard, const std::string& name,
                const ArrayType& type, std::string bytes) {
    manifest->shards[static_cast<size_t>(shard)].arrays[name].array = ArrayOf(type, bytes);
    arrays[ArrayEntry(table, shard, name)] = Array{type, std::move(bytes)};
  }

  // Writes the checkpoint in place of the one that was read, as one part.
  void Write() const {
    RemoveCheckpoint(files_, prefix_);
    auto created = PartWriter::Create(files_, prefix_);
    ASSERT_TRUE(created.ok()) << created.status().message();
    PartWriter* const part = created.value().get();
    for (const auto& [name, text] : strings) EXPECT_TRUE(part->AddString(name, text).ok());
    for (const auto& [name, array] : arrays) {
      const auto writer = part->NewArray(name, array.type);
      EXPECT_TRUE(writer->Write(array.bytes.data(), static_cast<int64_t>(array.bytes.size())).ok());
      EXPECT_TRUE(writer->Finish().ok()) << name;
    }
    EXPECT_TRUE(part->Finish().ok());
  }

 private:
  Files& files_;
  std::string prefix_;
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TESTING_REWRITTEN_CHECKPOINT_H_
