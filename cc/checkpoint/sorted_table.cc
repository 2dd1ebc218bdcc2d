#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc/base/crc32c.h"
#include "cc/checkpoint/tensor_index.h"
#include "cc/checkpoint/wire.h"

namespace sok {
namespace {

// After a block: a byte with its compression, which is 0 for none, and the masked checksum of both.
constexpr size_t kTrailerBytes = 5;
// The handles of the metaindex, which is empty, and of the index, filled up with zeros; a magic number.
constexpr size_t kHandlesBytes = 40;
constexpr size_t kFooterBytes = kHandlesBytes + 8;
constexpr uint32_t kMagicLow = 0x8b80fb57u;
constexpr uint32_t kMagicHigh = 0xdb477524u;
// A block is complete when it has this size.
constexpr size_t kBlockBytesOfTable = 1 << 18;
// Every 16th key is stored as a whole, and others without the beginning that they share with the one before.
constexpr int kRestartInterval = 16;
// Keys share beginnings, so a small file can have keys of a very large size. Those of real ones do not.
constexpr uint64_t kMostKeyBytesPerByte = 64;

struct Handle {
  uint64_t offset = 0;
  uint64_t size = 0;
};

void PutHandle(const Handle& handle, std::string* bytes) {
  PutVarint(handle.offset, bytes);
  PutVarint(handle.size, bytes);
}

class BlockWriter {
 public:
  explicit BlockWriter(int restart_interval) : restart_interval_(restart_interval) {}

  bool empty() const { return bytes_.empty(); }
  size_t size() const { return bytes_.size(); }
  const std::string& last_key() const { return last_key_; }

  void Add(const std::string& key, const std::string& value) {
    size_t shared = 0;
    if (since_restart_ == restart_interval_) {
      restarts_.push_back(static_cast<uint32_t>(bytes_.size()));
      since_restart_ = 0;
    } else {
      const size_t most = std::min(key.size(), last_key_.size());
      while (shared < most && key[shared] == last_key_[shared]) ++shared;
    }
    PutVarint(shared, &bytes_);
    PutVarint(key.size() - shared, &bytes_);
    PutVarint(value.size(), &bytes_);
    bytes_.append(key, shared, std::string::npos);
    bytes_ += value;
    last_key_ = key;
    ++since_restart_;
  }

  // Appends the block with its trailer to a file. The writer is then empty.
  Handle FinishTo(std::string* file) {
    for (const uint32_t restart : restarts_) PutFixed32(restart, &bytes_);
    PutFixed32(static_cast<uint32_t>(restarts_.size()), &bytes_);
    const Handle handle{file->size(), bytes_.size()};
    bytes_.push_back(0);
    const uint32_t crc = MaskCrc32c(Crc32c(bytes_));
    *file += bytes_;
    PutFixed32(crc, file);
    *this = BlockWriter(restart_interval_);
    return handle;
  }

 private:
  int restart_interval_;
  std::string bytes_;
  std::string last_key_;
  std::vector<uint32_t> restarts_ = {0};
  int since_restart_ = 0;
};

class TableReader {
 public:
  TableReader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  StatusOr<std::map<std::string, std::string>> Read() {
    if (bytes_.size() < kFooterBytes) return NotATable("is shorter than the end of one");
    WireReader footer(bytes_.substr(bytes_.size() - kFooterBytes));
    Handle metaindex;
    Handle index;
    SOK_RETURN_IF_ERROR(ReadHandle(&footer, &metaindex));
    SOK_RETURN_IF_ERROR(ReadHandle(&footer, &index));
    WireReader magic(bytes_.substr(bytes_.size() - 8));
    uint32_t low = 0;
    uint32_t high = 0;
    if (!magic.Fixed32(&low) || !magic.Fixed32(&high) || low != kMagicLow || high != kMagicHigh) {
      return NotATable("does not end as one");
    }
    if (footer.left().find_first_not_of('\0') < footer.left().size() - 8)
      return NotATable("does not end as one");
    SOK_RETURN_IF_ERROR(
        ForEachEntry(metaindex, [](const std::string&, std::string_view) { return OkStatus(); }));
    SOK_RETURN_IF_ERROR(ForEachEntry(index, [&](const std::string&, std::string_view value) -> Status {
      WireReader reader(value);
      Handle block;
      SOK_RETURN_IF_ERROR(ReadHandle(&reader, &block));
      return ForEachEntry(block, [&](const std::string& key, std::string_view text) -> Status {
        if (!entries_.empty() && key <= entries_.rbegin()->first) return NotATable("has keys out of order");
        key_bytes_ += key.size();
        if (key_bytes_ / kMostKeyBytesPerByte > bytes_.size()) return NotATable("has too long keys");
        entries_.emplace_hint(entries_.end(), key, text);
        return OkStatus();
      });
    }));
    return std::move(entries_);
  }

 private:
  Status NotATable(const char* reason) const {
    return DataLoss("'", path_, "' is damaged, or not the index of a checkpoint: it ", reason);
  }
  Status ReadHandle(WireReader* reader, Handle* handle) const {
    if (reader->Varint(&handle->offset) && reader->Varint(&handle->size)) return OkStatus();
    return NotATable("has a block without a place");
  }

  // Calls visit(key, value) on the entries of a block.
  template <typename Visit>
  Status ForEachEntry(const Handle& handle, const Visit& visit) const {
    if (handle.offset > bytes_.size() || handle.size > bytes_.size() - handle.offset ||
        bytes_.size() - handle.offset - handle.size < kTrailerBytes) {
      return NotATable("has a block beyond its end");
    }
    const std::string_view block = bytes_.substr(handle.offset, handle.size);
    WireReader trailer(bytes_.substr(handle.offset + handle.size + 1, 4));
    uint32_t crc = 0;
    if (!trailer.Fixed32(&crc) || crc != MaskCrc32c(Crc32c(bytes_.substr(handle.offset, handle.size + 1)))) {
      return NotATable("has a block whose checksum does not match");
    }
    if (bytes_[handle.offset + handle.size] != 0) return NotATable("has a compressed block");
    std::string_view contents;
    SOK_RETURN_IF_ERROR(WithoutRestarts(block, &contents));
    std::string key;
    for (WireReader reader(contents); !reader.empty();) {
      uint64_t shared = 0;
      uint64_t rest = 0;
      uint64_t size = 0;
      std::string_view end;
      std::string_view value;
      if (!reader.Varint(&shared) || !reader.Varint(&rest) || !reader.Varint(&size) || shared > key.size() ||
          !reader.Bytes(rest, &end) || !reader.Bytes(size, &value)) {
        return NotATable("has a block with a broken entry");
      }
      key.resize(shared);
      key += end;
      SOK_RETURN_IF_ERROR(visit(key, value));
    }
    return OkStatus();
  }
  Status WithoutRestarts(std::string_view block, std::string_view* contents) const {
    uint32_t restarts = 0;
    if (block.size() < 4) return NotATable("has a block without an end");
    WireReader(block.substr(block.size() - 4)).Fixed32(&restarts);
    if (restarts > (block.size() - 4) / 4) return NotATable("has a block without an end");
    *contents = block.substr(0, block.size() - 4 - restarts * size_t{4});
    return OkStatus();
  }

  const std::string_view bytes_;
  const std::string& path_;
  std::map<std::string, std::string> entries_;
  uint64_t key_bytes_ = 0;
};

}  // namespace

std::string EncodeSortedTable(const std::map<std::string, std::string>& entries) {
  std::string file;
  BlockWriter block(kRestartInterval);
  BlockWriter index(1);
  const auto finish = [&] {
    const std::string last = block.last_key();
    std::string handle;
    PutHandle(block.FinishTo(&file), &handle);
    index.Add(last, handle);
  };
  for (const auto& [key, value] : entries) {
    block.Add(key, value);
    if (block.size() >= kBlockBytesOfTable) finish();
  }
  if (!block.empty()) finish();
  std::string handles;
  PutHandle(BlockWriter(1).FinishTo(&file), &handles);
  PutHandle(index.FinishTo(&file), &handles);
  handles.resize(kHandlesBytes);
  file += handles;
  PutFixed32(kMagicLow, &file);
  PutFixed32(kMagicHigh, &file);
  return file;
}

StatusOr<std::map<std::string, std::string>> ParseSortedTable(std::string_view bytes,
                                                              const std::string& path) {
  return TableReader(bytes, path).Read();
}

}  // namespace sok
