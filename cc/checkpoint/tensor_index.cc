#include "cc/checkpoint/tensor_index.h"

#include <algorithm>
#include <cstdio>

#include "cc/base/crc32c.h"
#include "cc/checkpoint/wire.h"

namespace sok {
namespace {

// The types of fields in protocol buffers.
constexpr uint64_t kVarint = 0;
constexpr uint64_t kFixed64 = 1;
constexpr uint64_t kPrefixed = 2;
constexpr uint64_t kFixed32 = 5;

// TensorFlow's BundleEntryProto, TensorShapeProto, BundleHeaderProto, VersionDef.
enum EntryField { kDtype = 1, kShape = 2, kShard = 3, kOffset = 4, kBytes = 5, kCrc = 6, kSlices = 7 };
constexpr uint64_t kDimOfShape = 2;
constexpr uint64_t kSizeOfDim = 1;
constexpr uint64_t kExtentOfSlice = 1;
enum ExtentField { kStart = 1, kLength = 2 };
enum HeaderField { kShardsOfHeader = 1, kEndianness = 2, kVersionOfHeader = 3 };
constexpr uint64_t kProducer = 1;
constexpr uint64_t kMinConsumer = 2;
constexpr uint64_t kVersionOfFormat = 1;

// The key of the header.
constexpr char kHeader[] = "";

struct TensorDtype {
  uint64_t number;  // TensorFlow's
  const char* name;
};
constexpr TensorDtype kTensorDtypes[] = {
    {1, "<f4"}, {2, "<f8"},  {3, "<i4"},       {4, "|u1"},  {5, "<i2"},  {6, "|i1"},  {7, kStringDtype},
    {9, "<i8"}, {10, "|b1"}, {14, "bfloat16"}, {17, "<u2"}, {19, "<f2"}, {22, "<u4"}, {23, "<u8"}};

uint64_t NumberOf(const std::string& dtype) {
  for (const TensorDtype& known : kTensorDtypes) {
    if (dtype == known.name) return known.number;
  }
  return 0;
}

void PutNumber(uint64_t field, uint64_t value, std::string* bytes) {
  if (value == 0) return;
  PutVarint(field << 3 | kVarint, bytes);
  PutVarint(value, bytes);
}
void PutMessage(uint64_t field, std::string_view message, std::string* bytes) {
  PutVarint(field << 3 | kPrefixed, bytes);
  PutVarint(message.size(), bytes);
  bytes->append(message);
}

struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // of numbers
  std::string_view bytes;  // of messages
  std::string_view whole;  // with its number
};

// Calls visit(field) on the fields of a message, which returns whether the field is valid. Returns whether
// all are.
template <typename Visit>
bool ForEachField(std::string_view message, const Visit& visit) {
  for (WireReader reader(message); !reader.empty();) {
    Field field;
    const std::string_view before = reader.left();
    uint64_t tag = 0;
    if (!reader.Varint(&tag)) return false;
    field.number = tag >> 3;
    std::string_view skipped;
    uint32_t small = 0;
    switch (tag & 7) {
      case kVarint:
        if (!reader.Varint(&field.value)) return false;
        break;
      case kFixed64:
        if (!reader.Bytes(8, &skipped)) return false;
        break;
      case kPrefixed:
        if (!reader.Prefixed(&field.bytes)) return false;
        break;
      case kFixed32:
        if (!reader.Fixed32(&small)) return false;
        field.value = small;
        break;
      default:
        return false;
    }
    field.whole = before.substr(0, before.size() - reader.left().size());
    if (!visit(field)) return false;
  }
  return true;
}

bool ReadShape(std::string_view message, std::vector<int64_t>* shape) {
  return ForEachField(message, [shape](const Field& field) {
    if (field.number != kDimOfShape) return true;
    int64_t size = 0;
    const bool valid = ForEachField(field.bytes, [&size](const Field& of_dim) {
      if (of_dim.number == kSizeOfDim) size = static_cast<int64_t>(of_dim.value);
      return true;
    });
    shape->push_back(size);
    return valid && size >= 0;
  });
}

bool ReadSlice(std::string_view message, TensorSlice* slice) {
  return ForEachField(message, [slice](const Field& field) {
    if (field.number != kExtentOfSlice) return true;
    TensorSlice::Extent& extent = slice->extents.emplace_back();
    const bool valid = ForEachField(field.bytes, [&extent](const Field& of_extent) {
      if (of_extent.number == kStart) extent.start = static_cast<int64_t>(of_extent.value);
      if (of_extent.number == kLength) extent.length = static_cast<int64_t>(of_extent.value);
      return true;
    });
    return valid && extent.start >= 0 && extent.length >= TensorSlice::kWhole;
  });
}

// Keys of slices are numbers and strings in an encoding with the order of what they encode.
void PutOrdered(uint64_t number, std::string* key) {
  std::string bytes;
  for (; number > 0; number >>= 8) bytes.insert(bytes.begin(), static_cast<char>(number & 0xff));
  key->push_back(static_cast<char>(bytes.size()));
  *key += bytes;
}

void PutOrdered(std::string_view text, std::string* key) {
  for (const char c : text) {
    key->push_back(c);
    if (c == '\0') key->push_back('\xff');
    if (c == '\xff') key->push_back('\0');
  }
  key->append("\0\x01", 2);
}

// The number of bytes is the number of ones at the beginning, for negative numbers of zeros; the bit after
// them is the sign.
void PutOrderedSigned(int64_t number, std::string* key) {
  const uint64_t magnitude = static_cast<uint64_t>(number < 0 ? ~number : number);
  int length = 1;
  while (length < 10 && magnitude >> std::min(7 * length - 1, 63) != 0) ++length;
  std::string bytes(10, number < 0 ? '\xff' : '\0');
  for (int i = 0; i < 8; ++i)
    bytes[9 - i] = static_cast<char>(static_cast<uint64_t>(number) >> (8 * i) & 0xff);
  bytes.erase(0, static_cast<size_t>(10 - length));
  for (int i = 0; i < length; ++i) bytes[static_cast<size_t>(i / 8)] ^= static_cast<char>(0x80 >> (i % 8));
  *key += bytes;
}

}  // namespace

std::string SliceEntry(const std::string& name, const TensorSlice& slice) {
  std::string key;
  PutOrdered(uint64_t{0}, &key);
  PutOrdered(std::string_view(name), &key);
  PutOrdered(uint64_t{slice.extents.size()}, &key);
  for (const TensorSlice::Extent& extent : slice.extents) {
    PutOrderedSigned(extent.start, &key);
    PutOrderedSigned(extent.length, &key);
  }
  return key;
}

std::string EncodeTensorPlace(const TensorPlace& place) {
  std::string shape;
  for (const int64_t size : place.shape) {
    std::string dim;
    PutNumber(kSizeOfDim, static_cast<uint64_t>(size), &dim);
    PutMessage(kDimOfShape, dim, &shape);
  }
  std::string entry;
  PutNumber(kDtype, NumberOf(place.dtype), &entry);
  PutMessage(kShape, shape, &entry);
  PutNumber(kShard, static_cast<uint64_t>(place.shard), &entry);
  PutNumber(kOffset, static_cast<uint64_t>(place.offset), &entry);
  PutNumber(kBytes, static_cast<uint64_t>(place.bytes), &entry);
  PutVarint(kCrc << 3 | kFixed32, &entry);
  PutFixed32(MaskCrc32c(place.crc32c), &entry);
  return entry;
}

StatusOr<TensorPlace> ParseTensorPlace(std::string_view entry, const std::string& path,
                                       const std::string& name) {
  TensorPlace place;
  const bool valid = ForEachField(entry, [&place](const Field& field) {
    switch (field.number) {
      case kDtype:
        for (const TensorDtype& known : kTensorDtypes) {
          if (field.value == known.number) place.dtype = known.name;
        }
        return true;
      case kShape:
        return ReadShape(field.bytes, &place.shape);
      case kShard:
        place.shard = static_cast<int>(field.value);
        return field.value < 1u << 30;
      case kOffset:
        place.offset = static_cast<int64_t>(field.value);
        return place.offset >= 0;
      case kBytes:
        place.bytes = static_cast<int64_t>(field.value);
        return place.bytes >= 0;
      case kCrc:
        place.crc32c = UnmaskCrc32c(static_cast<uint32_t>(field.value));
        return true;
      case kSlices:
        place.slices.emplace_back();
        return ReadSlice(field.bytes, &place.slices.back());
      default:
        return true;
    }
  });
  int64_t end = 0;
  if (valid && !__builtin_add_overflow(place.offset, place.bytes, &end)) return place;
  return DataLoss("'", path, "' is damaged: its entry of '", name, "' is not one of a tensor");
}

std::string MovedTensorPlace(std::string_view entry, int shard, int64_t offset) {
  std::string moved;
  ForEachField(entry, [&moved](const Field& field) {
    if (field.number != kShard && field.number != kOffset) moved += field.whole;
    return true;
  });
  PutNumber(kShard, static_cast<uint64_t>(shard), &moved);
  PutNumber(kOffset, static_cast<uint64_t>(offset), &moved);
  return moved;
}

std::string EncodeTensorIndex(const TensorIndex& index) {
  std::string version;
  PutNumber(kProducer, kVersionOfFormat, &version);
  std::string header;
  PutNumber(kShardsOfHeader, static_cast<uint64_t>(index.shards), &header);
  PutMessage(kVersionOfHeader, version, &header);
  std::map<std::string, std::string> entries = index.entries;
  entries[kHeader] = header;
  return EncodeSortedTable(entries);
}

StatusOr<TensorIndex> ParseTensorIndex(std::string_view bytes, const std::string& path) {
  SOK_ASSIGN_OR_RETURN(auto entries, ParseSortedTable(bytes, path));
  const auto header = entries.find(kHeader);
  if (header == entries.end()) return DataLoss("'", path, "' is not the index of a checkpoint");
  uint64_t shards = 0;
  uint64_t endianness = 0;
  uint64_t min_consumer = 0;
  const bool valid = ForEachField(header->second, [&](const Field& field) {
    if (field.number == kShardsOfHeader) shards = field.value;
    if (field.number == kEndianness) endianness = field.value;
    if (field.number != kVersionOfHeader) return true;
    return ForEachField(field.bytes, [&](const Field& of_version) {
      if (of_version.number == kMinConsumer) min_consumer = of_version.value;
      return true;
    });
  });
  if (!valid || shards == 0 || shards > 1u << 30) return DataLoss("'", path, "' has a damaged header");
  if (endianness != 0) return DataLoss("'", path, "' was written by a machine with another order of bytes");
  if (min_consumer > kVersionOfFormat) {
    return DataLoss("'", path, "' is of a version of TensorFlow's format that this library does not know");
  }
  TensorIndex index;
  index.shards = static_cast<int>(shards);
  entries.erase(header);
  index.entries = std::move(entries);
  return index;
}

std::string IndexPath(const std::string& prefix) { return prefix + ".index"; }

std::string DataPath(const std::string& prefix, int shard, int shards) {
  char end[48];
  std::snprintf(end, sizeof(end), ".data-%05d-of-%05d", shard, shards);
  return prefix + end;
}

namespace {

// The length of a string as TensorFlow's checksum sees it.
std::string LengthForChecksum(std::string_view text) {
  std::string bytes;
  PutFixed32(static_cast<uint32_t>(text.size()), &bytes);
  if (text.size() > UINT32_MAX) PutFixed32(static_cast<uint32_t>(text.size() >> 32), &bytes);
  return bytes;
}

std::string ChecksumOfLength(std::string_view text) {
  std::string bytes;
  PutFixed32(MaskCrc32c(Crc32c(LengthForChecksum(text))), &bytes);
  return bytes;
}

}  // namespace

std::string EncodeStringTensor(std::string_view text) {
  std::string bytes;
  PutVarint(text.size(), &bytes);
  bytes += ChecksumOfLength(text);
  bytes.append(text);
  return bytes;
}

uint32_t StringTensorCrc32c(std::string_view text) {
  const std::string start = LengthForChecksum(text) + ChecksumOfLength(text);
  return CombineCrc32c(Crc32c(start), Crc32c(text), static_cast<int64_t>(text.size()));
}

bool ParseStringTensor(std::string_view bytes, uint32_t crc32c, std::string* text) {
  WireReader reader(bytes);
  uint64_t size = 0;
  std::string_view checksum;
  std::string_view found;
  if (!reader.Varint(&size) || !reader.Bytes(4, &checksum) || !reader.Bytes(size, &found)) return false;
  if (!reader.empty() || checksum != ChecksumOfLength(found) || StringTensorCrc32c(found) != crc32c)
    return false;
  text->assign(found);
  return true;
}

}  // namespace sok
