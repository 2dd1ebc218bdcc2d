#include "cc/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "cc/checkpoint/json_reader.h"

namespace sok {
namespace {

ArrayFile Array(int shard, const std::string& name, const ArrayType& type) {
  ArrayFile array;
  array.file = ArrayPath(shard, name);
  array.type = type;
  array.bytes = static_cast<int64_t>(EncodeNpyHeader(type).size()) + DataBytes(type);
  array.crc32.assign(static_cast<size_t>(BlocksOf(array.bytes)), 0xffffffffu);
  return array;
}

Manifest Example() {
  Manifest manifest;
  manifest.table.options.name = "items \"crc32\": 5 \xff";
  manifest.table.options.dim = 2;
  manifest.table.options.initializer.seed = UINT64_MAX;
  manifest.table.options.initializer.b = 0.1f;
  manifest.steps = 12;
  manifest.uses = 13;
  manifest.rows = 7;
  SavedOptimizer optimizer;
  optimizer.name = "adagrad";
  optimizer.steps = 12;
  optimizer.hyper = {{"learning_rate", 0.001f}, {"epsilon", std::numeric_limits<float>::denorm_min()}};
  optimizer.slots = {{"accumulator", 2, 0.1f}};
  manifest.optimizer = optimizer;
  for (int shard = 0; shard < 2; ++shard) {
    SavedShard saved;
    saved.rows = saved.table_rows = 3 + shard;
    saved.arrays["keys"] = Array(shard, "keys", {"<i8", {saved.rows}});
    saved.arrays["values"] = Array(shard, "values", {"<f4", {saved.rows, 2}});
    saved.arrays["slot-accumulator"] = Array(shard, "slot-accumulator", {"<f4", {saved.rows, 2}});
    manifest.shards.push_back(saved);
  }
  return manifest;
}

TEST(ManifestTest, ReadsWhatItWrote) {
  const std::string text = EncodeManifest(Example());
  const auto read = ParseManifest(text, "/x/manifest.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(EncodeManifest(read.value()).size(), text.size()) << "hyper-parameters are sorted by name";
  EXPECT_EQ(read.value().table.options.initializer.seed, UINT64_MAX);
  EXPECT_EQ(read.value().table.options.initializer.b, 0.1f);
  EXPECT_EQ(read.value().optimizer->hyper.size(), 2u);
  EXPECT_EQ(read.value().shards[1].arrays.at("values").crc32, std::vector<uint32_t>{0xffffffffu});
  EXPECT_NE(text.find("\"learning_rate\": 0.001,"), std::string::npos) << "floats are short";
  EXPECT_NE(text.find("\"version\": 1,"), std::string::npos);
}

TEST(ManifestTest, SharedInitialRowsAndTheOlderAdmissionAreVersion3) {
  for (const uint32_t rows : {0u, 1u, UINT32_MAX}) {
    for (const bool before_lookup : {false, true}) {
      Manifest manifest = Example();
      TableOptions& options = manifest.table.options;
      options.initializer.rows = rows;
      options.admission.before_lookup = before_lookup;
      if (before_lookup) {
        options.admission.kind = Admission::Kind::kCounter;
        for (int shard = 0; shard < 2; ++shard) {
          for (const char* name : {"waiting_keys", "waiting_counts", "waiting_last_step"}) {
            manifest.shards[shard].arrays[name] = Array(shard, name, {"<i8", {0}});
          }
        }
      }
      const std::string text = EncodeManifest(manifest);
      const bool is_newer = rows > 0 || before_lookup;
      EXPECT_NE(text.find(is_newer ? "\"version\": 3," : "\"version\": 1,"), std::string::npos);
      const auto read = ParseManifest(text, "manifest.json");
      ASSERT_TRUE(read.ok()) << read.status().message();
      EXPECT_EQ(read.value().table.options.initializer.rows, rows);
      EXPECT_EQ(read.value().table.options.admission.before_lookup, before_lookup);
    }
  }
}

TEST(ManifestTest, GivenInitialRowsAreVersion5) {
  Manifest manifest = Example();
  TableOptions& options = manifest.table.options;
  options.initializer = Initializer(InitializerKind::kGiven, 0.0f, 0.0f, 9, /*rows=*/3);
  EXPECT_NE(ParseManifest(EncodeManifest(manifest), "m").status().message().find("\"initial_rows\""),
            std::string::npos);
  manifest.shards[0].arrays["initial_rows"] = Array(0, "initial_rows", {"<f4", {3, options.dim}});
  const std::string text = EncodeManifest(manifest);
  EXPECT_NE(text.find("\"version\": 5,"), std::string::npos);
  const auto read = ParseManifest(text, "manifest.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().table.options.initializer.kind, InitializerKind::kGiven);
  EXPECT_EQ(read.value().table.options.initializer.rows, 3u);
}

TEST(ManifestTest, AnyChangedByteIsAnError) {
  const std::string text = EncodeManifest(Example());
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char change : {1, 32, 64}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ change);
      EXPECT_EQ(ParseManifest(changed, "m").status().code(), StatusCode::kDataLoss) << i;
    }
    EXPECT_FALSE(ParseManifest(text.substr(0, i), "m").ok());
  }
  EXPECT_FALSE(ParseManifest(text + "x", "m").ok());
  EXPECT_FALSE(ParseManifest("", "m").ok());
}

// Expects an error with `reason` for a manifest after `change`, with a right checksum.
void ExpectRefused(const std::function<void(nlohmann::ordered_json*)>& change, const std::string& reason) {
  Manifest manifest = Example();
  manifest.table.options.name = "items";
  auto json = nlohmann::ordered_json::parse(EncodeManifest(manifest));
  json.erase("crc32");
  change(&json);
  std::string text = json.dump(1);
  text.resize(text.size() - 2);
  text += ",\n ";
  text += StrCat("\"crc32\": ", Crc32(text), "\n}");
  const Status status = ParseManifest(text, "/x/manifest.json").status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << reason;
  EXPECT_NE(status.message().find(reason), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("/x/manifest.json"), std::string::npos) << status.message();
}

using Json = nlohmann::ordered_json;

TEST(ManifestTest, SaysWhatIsWrong) {
  ExpectRefused([](Json* json) { (*json)["version"] = 2; }, "version 2");
  ExpectRefused([](Json* json) { (*json)["version"] = 3; }, "version 3");
  ExpectRefused([](Json* json) { (*json)["version"] = 6; }, "versions 1 to 5");
  ExpectRefused([](Json* json) { (*json)["table"]["initializer"]["kind"] = "given"; }, "initial row");
  ExpectRefused([](Json* json) { (*json)["table"]["initializer"]["rows"] = 5; }, "is of version 1");
  ExpectRefused([](Json* json) { (*json)["table"]["initializer"]["rows"] = 0; }, "\"rows\"");
  ExpectRefused([](Json* json) { (*json)["table"]["initializer"]["rows"] = int64_t{1} << 32; }, "\"rows\"");
  ExpectRefused([](Json* json) { json->erase("version"); }, "no \"version\"");
  ExpectRefused([](Json* json) { (*json)["format"] = "other"; }, "not a manifest of a checkpoint");
  ExpectRefused([](Json* json) { (*json)["steps"] = -1; }, "\"steps\"");
  ExpectRefused([](Json* json) { (*json)["rows"] = 8; }, "shards of 7 rows");
  ExpectRefused([](Json* json) { (*json)["rows"] = 7.0; }, "\"rows\"");
  ExpectRefused([](Json* json) { (*json)["block_bytes"] = 5; }, "\"block_bytes\"");
  ExpectRefused([](Json* json) { (*json)["shards"] = Json::array(); }, "0 shards");
  ExpectRefused([](Json* json) { (*json)["kind"] = "delta"; }, "chain of 0");
  ExpectRefused([](Json* json) { (*json)["table"]["dim"] = 3; }, "values.npy");
  ExpectRefused([](Json* json) { (*json)["table"]["dim"] = 0; }, "\"dim\"");
  ExpectRefused([](Json* json) { (*json)["table"]["hashed"] = 1; }, "\"hashed\"");
  ExpectRefused([](Json* json) { (*json)["table"]["initializer"]["seed"] = "-1"; }, "\"seed\"");
  ExpectRefused([](Json* json) { (*json)["optimizer"]["slots"][0]["width"] = 3; }, "slot-accumulator");
  ExpectRefused([](Json* json) { (*json)["optimizer"]["slots"][0]["width"] = INT64_MAX; }, "\"width\"");
  ExpectRefused([](Json* json) { (*json)["chain"].push_back({{"path", "/etc"}, {"crc32", 1}}); },
                "not relative");
}

TEST(ManifestTest, SaysWhatIsWrongWithAnArray) {
  const auto change = [](const char* member, const Json& value) {
    return [=](Json* json) { (*json)["shards"][1]["arrays"]["keys"][member] = value; };
  };
  ExpectRefused(change("file", "../../../etc/passwd"), "etc/passwd");
  ExpectRefused(change("file", "/etc/passwd"), "etc/passwd");
  ExpectRefused(change("file", "shard-00000/keys.npy"), "shard-00001/keys.npy belongs");
  ExpectRefused(change("dtype", "|O"), "bytes for shard-00001/keys.npy");
  ExpectRefused(change("shape", Json::array({INT64_MAX})), "bytes for shard-00001/keys.npy");
  ExpectRefused(change("shape", Json::array({-4})), "\"shape\"");
  ExpectRefused(change("shape", Json::array()), "bytes for shard-00001/keys.npy");
  ExpectRefused(change("bytes", 1), "bytes for shard-00001/keys.npy");
  ExpectRefused(change("crc32", Json::array()), "0 checksums");
  ExpectRefused([](Json* json) { (*json)["shards"][0]["arrays"].erase("values"); },
                "lacks the array \"values\"");
  ExpectRefused(
      [](Json* json) {
        Json array = (*json)["shards"][0]["arrays"]["keys"];
        array["file"] = "shard-00000/other.npy";
        (*json)["shards"][0]["arrays"]["other"] = array;
      },
      "do not belong");
}

TEST(ManifestTest, ARepeatedSlotBesideAnUnknownArrayIsAnError) {
  ExpectRefused(
      [](Json* json) {
        (*json)["optimizer"]["slots"].push_back((*json)["optimizer"]["slots"][0]);
        for (int shard = 0; shard < 2; ++shard) {
          Json& arrays = (*json)["shards"][static_cast<size_t>(shard)]["arrays"];
          arrays["more"] = arrays["keys"];
          arrays["more"]["file"] = ArrayPath(shard, "more");
        }
      },
      "two slots");
}

TEST(JsonTest, TextThatParsersReadDifferentlyIsRefused) {
  const auto refused = [](const std::string& text) {
    JsonReader reader("/x/some.json");
    reader.Parse(text);
    return reader.status().code() == StatusCode::kDataLoss;
  };
  EXPECT_FALSE(refused("{\"a\": [1, \"[[[\\\"[[[\"]}"));
  EXPECT_TRUE(refused(std::string("{}\0{}", 5))) << "must not be read as the text before the zero byte";
  EXPECT_TRUE(refused("\xef\xbb\xbf{}"));
  const auto nested = [](int levels) {
    return "{\"a\": " + std::string(levels, '[') + std::string(levels, ']') + "}";
  };
  EXPECT_FALSE(refused(nested(31)));
  EXPECT_TRUE(refused(nested(32)));
  EXPECT_TRUE(refused(std::string(100000000, '['))) << "before the parser, which would take gigabytes";
}

TEST(JsonTest, FloatsAreShortAndExact) {
  for (const float value : {0.1f, -0.05f, 1e-8f, 3.4028235e38f, 1.17549435e-38f, 0.0f, 16777216.0f}) {
    EXPECT_EQ(static_cast<float>(FloatJson(value).get<double>()), value);
  }
  EXPECT_EQ(FloatJson(0.1f).dump(), "0.1");
  JsonReader reader("x");
  EXPECT_TRUE(std::isinf(reader.AsFloat(nlohmann::json("inf"), "a")));
  EXPECT_TRUE(std::isnan(reader.AsFloat(nlohmann::json(FloatJson(std::nanf(""))), "a")));
  for (const float value : {std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest()}) {
    EXPECT_EQ(reader.AsFloat(nlohmann::json::parse(FloatJson(value).dump()), "a"), value);
  }
  EXPECT_TRUE(reader.ok());
  for (const double value : {0x1.ffffffp127, 1e39, -1e39}) {
    JsonReader of_large("x");
    of_large.AsFloat(nlohmann::json(value), "a");
    EXPECT_FALSE(of_large.ok()) << value;
  }
}

}  // namespace
}  // namespace sok
