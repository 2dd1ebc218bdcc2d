#include "cc/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "cc/checkpoint/json_reader.h"

namespace sok {
namespace {

PlacedArray Array(const ArrayType& type) {
  const SavedArray array{type, std::vector<uint32_t>(static_cast<size_t>(BlocksOf(DataBytes(type))), ~0u)};
  return PlacedArray{array, "", 0, 0};
}

// The texts of a table's entries, as one document.
nlohmann::ordered_json JsonOf(const Manifest& manifest) {
  nlohmann::ordered_json json;
  json["own"] = nlohmann::ordered_json::parse(EncodeTable(manifest));
  for (const SavedShard& shard : manifest.shards) {
    json["shards"].push_back(nlohmann::ordered_json::parse(EncodeShard(shard)));
  }
  return json;
}

StatusOr<Manifest> Read(const nlohmann::ordered_json& json, const std::string& name = "items") {
  ManifestReader reader("/x.index:items");
  int shards = 0;
  SOK_RETURN_IF_ERROR(reader.ReadTable(json["own"].dump(), name, &shards));
  for (int shard = 0; shard < shards; ++shard) {
    SOK_RETURN_IF_ERROR(reader.AddShard(json["shards"][static_cast<size_t>(shard)].dump()));
  }
  return reader.Finish();
}
StatusOr<Manifest> Reread(const Manifest& manifest) { return Read(JsonOf(manifest)); }

Manifest Example() {
  Manifest manifest;
  manifest.table.options.name = "items";
  manifest.table.options.ranks = 2;
  manifest.table.options.dim = 2;
  manifest.table.options.initializer.seed = UINT64_MAX;
  manifest.table.options.initializer.b = 0.1f;
  manifest.steps = 12;
  manifest.uses = 13;
  SavedOptimizer optimizer;
  optimizer.name = "adagrad";
  optimizer.steps = 12;
  optimizer.hyper = {{"learning_rate", 0.001f}, {"epsilon", std::numeric_limits<float>::denorm_min()}};
  optimizer.slots = {{"accumulator", 2, 0.1f}};
  manifest.optimizer = optimizer;
  for (int shard = 0; shard < 2; ++shard) {
    SavedShard saved;
    saved.rows = saved.table_rows = 3 + shard;
    saved.steps = 12;
    saved.arrays["keys"] = Array({"<i8", {saved.rows}});
    saved.arrays["values"] = Array({"<f4", {saved.rows, 2}});
    saved.arrays["slot-accumulator"] = Array({"<f4", {saved.rows, 2}});
    manifest.shards.push_back(saved);
  }
  return manifest;
}

TEST(ManifestTest, OnlyAServerWithoutAnOptimizerLacksSlots) {
  Manifest manifest = Example();
  manifest.apart = true;
  for (SavedShard& shard : manifest.shards) shard.optimizer = manifest.optimizer;
  const auto read = Reread(manifest);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_FALSE(read.value().shards[1].arrays.at("slot-accumulator").fill.has_value());
  const auto expect_refused = [](const Manifest& refused, const std::string& why) {
    const Status status = Reread(refused).status();
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  };
  Manifest other = manifest;
  other.shards[1].optimizer->name = "momentum";
  expect_refused(other, "a shard with the optimizer momentum beside one with adagrad");
  for (const int without : {0, 1}) {
    Manifest one = manifest;
    if (without == 0) one.optimizer.reset();
    one.shards[without].optimizer.reset();
    expect_refused(one, "slots in a shard without an optimizer");
    one.shards[without].arrays.erase("slot-accumulator");
    const auto filled = Reread(one);
    ASSERT_TRUE(filled.ok()) << filled.status().message();
    EXPECT_EQ(filled.value().optimizer->name, "adagrad");
    EXPECT_EQ(filled.value().shards[without].arrays.at("slot-accumulator").fill, 0.1f);
    Manifest of_ranks = one;
    of_ranks.apart = false;
    expect_refused(of_ranks, without == 0 ? "arrays that do not belong" : "lacks the array");
    one.shards[1 - without].arrays.erase("slot-accumulator");
    expect_refused(one, "lacks the array \"slot-accumulator\"");
  }
}

TEST(ManifestTest, ReadsWhatItWrote) {
  const std::string text = EncodeTable(Example());
  EXPECT_TRUE(IsTable(text));
  EXPECT_FALSE(IsTable("{\"format\":\"other\"}"));
  const auto read = Reread(Example());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(EncodeTable(read.value()).size(), text.size()) << "hyper-parameters are sorted by name";
  EXPECT_EQ(read.value().table.options.initializer.seed, UINT64_MAX);
  EXPECT_EQ(read.value().table.options.initializer.b, 0.1f);
  EXPECT_EQ(read.value().optimizer->hyper.size(), 2u);
  EXPECT_EQ(read.value().rows(), 7);
  EXPECT_EQ(read.value().shards[1].arrays.at("values").array.crc32c, std::vector<uint32_t>{0xffffffffu});
  EXPECT_NE(text.find("\"learning_rate\":0.001"), std::string::npos) << "floats are short";
}

TEST(ManifestTest, SharedInitialRowsAndTheOlderAdmission) {
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
            manifest.shards[shard].arrays[name] = Array({"<i8", {0}});
          }
        }
      }
      const auto read = Reread(manifest);
      ASSERT_TRUE(read.ok()) << read.status().message();
      EXPECT_EQ(read.value().table.options.initializer.rows, rows);
      EXPECT_EQ(read.value().table.options.admission.before_lookup, before_lookup);
    }
  }
}

TEST(ManifestTest, GivenInitialRows) {
  Manifest manifest = Example();
  TableOptions& options = manifest.table.options;
  options.initializer = Initializer(InitializerKind::kGiven, 0.0f, 0.0f, 9, /*rows=*/3);
  EXPECT_NE(Reread(manifest).status().message().find("\"initial_rows\""), std::string::npos);
  manifest.shards[0].arrays["initial_rows"] = Array({"<f4", {3, options.dim}});
  const auto read = Reread(manifest);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().table.options.initializer.kind, InitializerKind::kGiven);
  EXPECT_EQ(read.value().table.options.initializer.rows, 3u);
}

// Expects an error with `reason` for a table after `change`.
void ExpectRefused(const std::function<void(nlohmann::ordered_json*)>& change, const std::string& reason) {
  auto json = JsonOf(Example());
  change(&json);
  const Status status = Read(json).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << reason;
  EXPECT_NE(status.message().find(reason), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("/x.index:items"), std::string::npos) << status.message();
}

using Json = nlohmann::ordered_json;

TEST(ManifestTest, SaysWhatIsWrong) {
  ExpectRefused([](Json* json) { (*json)["own"]["version"] = 2; }, "version 2; this library reads version 1");
  ExpectRefused([](Json* json) { (*json)["own"]["table"]["initializer"]["kind"] = "given"; }, "initial_rows");
  ExpectRefused([](Json* json) { (*json)["own"]["table"]["initializer"]["rows"] = 0; }, "\"rows\"");
  ExpectRefused([](Json* json) { (*json)["own"]["table"]["initializer"]["rows"] = int64_t{1} << 32; },
                "\"rows\"");
  ExpectRefused([](Json* json) { (*json)["own"].erase("version"); }, "no \"version\"");
  ExpectRefused([](Json* json) { (*json)["own"]["format"] = "other"; }, "not a table of a checkpoint");
  ExpectRefused([](Json* json) { (*json)["own"]["steps"] = -1; }, "\"steps\"");
  // The next step would overflow.
  ExpectRefused([](Json* json) { (*json)["own"]["steps"] = INT64_MAX; }, "\"steps\"");
  ExpectRefused([](Json* json) { (*json)["own"]["uses"] = INT64_MAX; }, "\"uses\"");
  ExpectRefused([](Json* json) { (*json)["own"]["optimizer"]["steps"] = INT64_MAX; }, "\"steps\"");
  ExpectRefused([](Json* json) { (*json)["shards"][1]["steps"] = 11; }, "a shard of step 11");
  ExpectRefused([](Json* json) { (*json)["own"]["table"]["name"] = "users"; }, "not of 'items'");
  ExpectRefused([](Json* json) { (*json)["own"]["block_bytes"] = 5; }, "\"block_bytes\"");
  ExpectRefused([](Json* json) { (*json)["own"]["shards"] = 0; }, "\"shards\"");
  ExpectRefused([](Json* json) { (*json)["own"]["kind"] = "delta"; }, "chain of 0");
  ExpectRefused([](Json* json) { (*json)["own"]["table"]["dim"] = 3; }, "the array \"values\"");
  ExpectRefused([](Json* json) { (*json)["own"]["table"]["dim"] = 0; }, "\"dim\"");
  ExpectRefused([](Json* json) { (*json)["own"]["table"]["hashed"] = 1; }, "\"hashed\"");
  ExpectRefused([](Json* json) { (*json)["own"]["table"]["initializer"]["seed"] = "-1"; }, "\"seed\"");
  ExpectRefused([](Json* json) { (*json)["own"]["optimizer"]["slots"][0]["width"] = 3; }, "slot-accumulator");
  ExpectRefused([](Json* json) { (*json)["own"]["optimizer"]["slots"][0]["width"] = INT64_MAX; },
                "\"width\"");
  ExpectRefused([](Json* json) { (*json)["own"]["chain"].push_back({{"prefix", "/etc"}, {"id", "x"}}); },
                "not relative");
}

TEST(ManifestTest, TypesInSixteenBits) {
  Manifest manifest = Example();
  EXPECT_EQ(EncodeTable(manifest).find("dtype\":\"float32"), std::string::npos) << "as in earlier releases";
  manifest.table.options.record.weights = FloatType::kFloat16;
  manifest.optimizer->slots[0].type = FloatType::kBfloat16;
  for (SavedShard& shard : manifest.shards) {
    shard.arrays["values"] = Array({"<f2", {shard.rows, 2}});
    shard.arrays["slot-accumulator"] = Array({"bfloat16", {shard.rows, 2}});
  }
  const auto read = Reread(manifest);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().table.options.record.weights, FloatType::kFloat16);
  EXPECT_EQ(read.value().table.options.record.slots, FloatType::kBfloat16);
  // A build that does not know the members finds arrays of another type than it reads.
  auto json = JsonOf(manifest);
  json["own"]["table"].erase("row_dtype");
  EXPECT_NE(
      Read(json).status().message().find("has float16 [3, 2] in the array \"values\", not float32 [3, 2]"),
      std::string::npos);
}

TEST(ManifestTest, SaysWhatIsWrongWithTypes) {
  const auto row_dtype = [](const Json& value) {
    return [=](Json* json) { (*json)["own"]["table"]["row_dtype"] = value; };
  };
  const auto slot_dtype = [](const Json& value) {
    return [=](Json* json) { (*json)["own"]["optimizer"]["slots"][0]["dtype"] = value; };
  };
  for (const char* const unknown : {"float64", "int8", "float32", ""}) {
    ExpectRefused(row_dtype(unknown), StrCat("unknown \"row_dtype\": \"", unknown, "\""));
    ExpectRefused(slot_dtype(unknown), StrCat("unknown \"dtype\": \"", unknown, "\""));
  }
  ExpectRefused(slot_dtype("float16"), "unknown \"dtype\": \"float16\"");
  ExpectRefused(row_dtype(16), "\"row_dtype\"");
  ExpectRefused(slot_dtype(Json::array()), "\"dtype\"");
  ExpectRefused(row_dtype("bfloat16"), "has float32 [3, 2] in the array \"values\", not bfloat16 [3, 2]");
  ExpectRefused(slot_dtype("bfloat16"),
                "has float32 [3, 2] in the array \"slot-accumulator\", not bfloat16 [3, 2]");
}

TEST(ManifestTest, SaysWhatIsWrongWithAnArray) {
  const auto change = [](const char* member, const Json& value) {
    return [=](Json* json) { (*json)["shards"][1]["arrays"]["keys"][member] = value; };
  };
  ExpectRefused(change("dtype", "|O"), "\"keys\" of an impossible type");
  ExpectRefused(change("shape", Json::array({INT64_MAX})), "\"keys\" of an impossible type");
  ExpectRefused(change("shape", Json::array({-4})), "\"shape\"");
  ExpectRefused(change("shape", Json::array()), "\"keys\" of an impossible type");
  ExpectRefused(change("crc32c", Json::array()), "0 checksums");
  ExpectRefused(
      [](Json* json) { (*json)["shards"][0]["arrays"]["../x"] = (*json)["shards"][0]["arrays"]["keys"]; },
      "unknown name");
  ExpectRefused([](Json* json) { (*json)["shards"][0]["arrays"].erase("values"); },
                "lacks the array \"values\"");
  ExpectRefused(
      [](Json* json) {
        Json& arrays = (*json)["shards"][0]["arrays"];
        arrays["other"] = Json(arrays["keys"]);
      },
      "do not belong");
}

TEST(ManifestTest, ARepeatedSlotBesideAnUnknownArrayIsAnError) {
  ExpectRefused(
      [](Json* json) {
        (*json)["own"]["optimizer"]["slots"].push_back((*json)["own"]["optimizer"]["slots"][0]);
        for (int shard = 0; shard < 2; ++shard) {
          Json& arrays = (*json)["shards"][static_cast<size_t>(shard)]["arrays"];
          arrays["more"] = Json(arrays["keys"]);
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
