#include "cc/checkpoint/tensor_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "cc/base/crc32c.h"
#include "cc/checkpoint/wire.h"

namespace sok {
namespace {

TEST(Crc32cTest, EqualsTheStandards) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(UnmaskCrc32c(MaskCrc32c(0xe3069283u)), 0xe3069283u);
}

TEST(Crc32cTest, AllWaysToComputeItAgree) {
  std::mt19937_64 random(1);
  std::string text((1 << 20) + 1, '\0');
  for (char& c : text) c = static_cast<char>(random());
  std::vector<size_t> sizes{(1 << 16) - 1, 1 << 16, (1 << 16) + 13, 100003, 1 << 20, text.size()};
  for (size_t size = 0; size < 1000; size += 7) sizes.push_back(size);
  for (const size_t size : sizes) {
    const uint32_t crc = Crc32c(text.data(), static_cast<int64_t>(size));
    EXPECT_EQ(PortableCrc32c(text.data(), static_cast<int64_t>(size)), crc);
    const size_t cut = size / 3;
    EXPECT_EQ(CombineCrc32c(Crc32c(text.substr(0, cut)), Crc32c(text.substr(cut, size - cut)),
                            static_cast<int64_t>(size - cut)),
              crc);
  }
}

std::string FromHex(std::string_view digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

// What TensorFlow 2.15's Saver writes for the variables w = [[0, 1, 2], [3, 4, 5]], global_step = 7 and words
// = "text".
constexpr char kIndexOfTensorFlow[] =
    "00000608011a020801000b0b676c6f62616c5f7374657008091200280835bbd79f11000115770801120812020802120208032008"
    "2818"
    "35c0db3d1701040d6f7264730807120020202809351b4c333f000000000100000000dff720e7000000000100000000c0f2a1b000"
    "0102"
    "7800570000000001000000005d94e1fc5c08690e0000000000000000000000000000000000000000000000000000000000000000"
    "0000"
    "000057fb808b247547db";
constexpr char kDataOfTensorFlow[] =
    "0700000000000000000000000000803f0000004000004040000080400000a040046251eb9674657874";

TensorPlace Place() {
  TensorPlace place;
  place.dtype = "<f4";
  place.shape = {300, 0, 16};
  place.shard = 7;
  place.offset = int64_t{1} << 40;
  place.bytes = 1234567;
  place.crc32c = 0xdeadbeefu;
  return place;
}

TensorIndex Example(int tensors) {
  TensorIndex index;
  index.shards = 9;
  for (int i = 0; i < tensors; ++i) {
    TensorPlace place = Place();
    place.offset = i;
    index.entries[StrCat("scope/t", i, "#0/values")] = EncodeTensorPlace(place);
  }
  return index;
}

TEST(TensorIndexTest, ReadsWhatTensorFlowWrote) {
  const std::string data = FromHex(kDataOfTensorFlow);
  const auto index = ParseTensorIndex(FromHex(kIndexOfTensorFlow), "m.index");
  ASSERT_TRUE(index.ok()) << index.status().message();
  EXPECT_EQ(index.value().shards, 1);
  ASSERT_EQ(index.value().entries.size(), 3u);
  const auto place_of = [&](const std::string& name) {
    const std::string& entry = index.value().entries.at(name);
    const TensorPlace place = ParseTensorPlace(entry, "m.index", name).value();
    EXPECT_EQ(EncodeTensorPlace(place), entry) << name;
    return place;
  };
  const TensorPlace w = place_of("w");
  EXPECT_EQ(w.dtype, "<f4");
  EXPECT_EQ(w.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(w.offset, 8);
  EXPECT_EQ(Crc32c(data.data() + w.offset, w.bytes), w.crc32c);
  EXPECT_EQ(place_of("global_step").dtype, "<i8");
  const TensorPlace words = place_of("words");
  EXPECT_EQ(words.dtype, kStringDtype);
  const std::string bytes = data.substr(static_cast<size_t>(words.offset), static_cast<size_t>(words.bytes));
  EXPECT_EQ(EncodeStringTensor("text"), bytes);
  std::string text;
  EXPECT_TRUE(ParseStringTensor(bytes, words.crc32c, &text));
  EXPECT_EQ(text, "text");
}

TEST(TensorIndexTest, ReadsWhatItWrote) {
  // More than one block of 256 KiB, too.
  for (const int tensors : {0, 1, 17, 20000}) {
    const TensorIndex index = Example(tensors);
    const auto read = ParseTensorIndex(EncodeTensorIndex(index), "x.index");
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read.value().shards, 9);
    EXPECT_TRUE(read.value().entries == index.entries);
  }
}

TEST(TensorIndexTest, PlacesAreReadAndMoved) {
  const std::string entry = EncodeTensorPlace(Place());
  const TensorPlace read = ParseTensorPlace(entry, "x.index", "t").value();
  EXPECT_EQ(read.dtype, "<f4");
  EXPECT_EQ(read.shape, Place().shape);
  EXPECT_EQ(read.shard, 7);
  EXPECT_EQ(read.offset, Place().offset);
  EXPECT_EQ(read.bytes, 1234567);
  EXPECT_EQ(read.crc32c, 0xdeadbeefu);
  // A field that this library does not know: TensorFlow's slices.
  const TensorPlace moved =
      ParseTensorPlace(MovedTensorPlace(entry + std::string("\x3a\x00", 2), 0, 5), "x.index", "t").value();
  EXPECT_EQ(moved.shard, 0);
  EXPECT_EQ(moved.offset, 5);
  EXPECT_EQ(moved.slices.size(), 1u);
  EXPECT_EQ(moved.crc32c, 0xdeadbeefu);
}

// As TensorFlow writes them, for slices of 64 rows of a variable with one column.
TEST(TensorIndexTest, KeysOfSlices) {
  const std::vector<std::pair<int64_t, std::string>> starts = {{0, "80"},
                                                               {1, "81"},
                                                               {63, "bf"},
                                                               {64, "c040"},
                                                               {8191, "dfff"},
                                                               {8192, "e02000"},
                                                               {(1 << 20) - 1, "efffff"},
                                                               {1 << 20, "f0100000"},
                                                               {int64_t{1} << 27, "f808000000"},
                                                               {int64_t{1} << 34, "fc0400000000"},
                                                               {(int64_t{1} << 41) + 5, "fe020000000005"},
                                                               {int64_t{1} << 48, "ff01000000000000"},
                                                               {int64_t{1} << 55, "ff8080000000000000"},
                                                               {int64_t{1} << 61, "ffa000000000000000"}};
  const auto hex = [](const std::string& text) {
    std::string digits;
    for (const char c : text) {
      char two[3];
      std::snprintf(two, sizeof(two), "%02x", static_cast<unsigned char>(c));
      digits += two;
    }
    return digits;
  };
  for (const auto& [start, encoded] : starts) {
    const std::string key = SliceEntry("scope/v", TensorSlice{{{start, 64}, {0, 1}}});
    EXPECT_EQ(hex(key), "0073636f70652f7600010102" + encoded + "c0408081") << start;
  }
  EXPECT_EQ(hex(SliceEntry("w", TensorSlice{{{0, 4}, {0, TensorSlice::kWhole}}})), "0077000101028084807f");
  EXPECT_EQ(hex(SliceEntry(std::string("a\0\xff", 3), TensorSlice{})),
            "00"
            "61"
            "00ff"
            "ff00"
            "0001"
            "00");
}

TEST(TensorIndexTest, ImpossiblePlacesAreRefused) {
  TensorPlace place = Place();
  for (const int64_t offset : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    place.offset = offset;
    const Status status = ParseTensorPlace(EncodeTensorPlace(place), "x.index", "t").status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("'x.index'"), std::string::npos) << status.message();
  }
  place = Place();
  place.shape = {-3};
  EXPECT_FALSE(ParseTensorPlace(EncodeTensorPlace(place), "x.index", "t").ok());
  EXPECT_FALSE(ParseTensorPlace("\x08", "x.index", "t").ok());
}

TEST(TensorIndexTest, AnyChangedByteIsAnError) {
  const std::string text = EncodeTensorIndex(Example(20));
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char change : {1, 32, 64}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ change);
      EXPECT_EQ(ParseTensorIndex(changed, "m").status().code(), StatusCode::kDataLoss) << i;
    }
    EXPECT_FALSE(ParseTensorIndex(text.substr(0, i), "m").ok());
  }
  EXPECT_FALSE(ParseTensorIndex(text + "x", "m").ok());
}

// Appends a block of a sorted table, whose entries share beginnings without end, and its handle.
void AppendBlock(std::string entries, std::string* file, std::string* handles) {
  PutFixed32(0, &entries);
  PutFixed32(1, &entries);
  PutVarint(file->size(), handles);
  PutVarint(entries.size(), handles);
  entries.push_back(0);
  const uint32_t crc = MaskCrc32c(Crc32c(entries));
  *file += entries;
  PutFixed32(crc, file);
}

std::string EntryOf(uint64_t shared, const std::string& rest, const std::string& value) {
  std::string entry;
  PutVarint(shared, &entry);
  PutVarint(rest.size(), &entry);
  PutVarint(value.size(), &entry);
  return entry + rest + value;
}

TEST(TensorIndexTest, KeysThatShareLongBeginningsDoNotFillTheMemory) {
  for (const bool is_hostile : {false, true}) {
    const size_t length = is_hostile ? 100000 : 100;
    std::string entries = EntryOf(0, std::string(length, 'a'), "");
    for (int i = 0; i < 2000; ++i) entries += EntryOf(length, std::to_string(10000 + i), "");
    std::string file;
    std::string handle;
    AppendBlock(entries, &file, &handle);
    std::string handles;
    AppendBlock("", &file, &handles);
    AppendBlock(EntryOf(0, "b", handle), &file, &handles);
    handles.resize(40);
    const auto read = ParseSortedTable(file + handles + FromHex("57fb808b247547db"), "m");
    EXPECT_EQ(read.ok(), !is_hostile) << read.status().message();
  }
}

TEST(StringTensorTest, ReadsWhatItWrote) {
  for (const std::string& text : {std::string(), std::string("x"), std::string(70000, 'y')}) {
    const std::string bytes = EncodeStringTensor(text);
    const uint32_t crc = StringTensorCrc32c(text);
    std::string read = "old";
    ASSERT_TRUE(ParseStringTensor(bytes, crc, &read));
    EXPECT_EQ(read, text);
    EXPECT_FALSE(ParseStringTensor(bytes, crc + 1, &read));
    EXPECT_FALSE(ParseStringTensor(bytes + "x", crc, &read));
    EXPECT_FALSE(ParseStringTensor(bytes.substr(1), crc, &read));
    for (size_t i = 0; i < std::min<size_t>(bytes.size(), 16); ++i) {
      std::string damaged = bytes;
      damaged[i] ^= 1;
      EXPECT_FALSE(ParseStringTensor(damaged, crc, &read)) << i;
    }
  }
}

}  // namespace
}  // namespace sok
