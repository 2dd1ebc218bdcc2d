#include "cc/checkpoint/save_notes.h"

#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/manifest_json.h"

namespace sok {
namespace {

std::string PlanPath(Files& files, const std::string& table) { return TableFile(files, table, "plan.json"); }
std::string NotePath(Files& files, const std::string& table, int shard) {
  return TableFile(files, table, ShardFolder(shard) + ".json");
}

StatusOr<nlohmann::json> ReadJson(Files& files, const std::string& path) {
  std::string bytes;
  SOK_RETURN_IF_ERROR(ReadWholeFile(files, path, kMaxManifestBytes, &bytes));
  JsonReader reader(path);
  nlohmann::json json = reader.Parse(bytes);
  if (!reader.ok()) return reader.status();
  return json;
}

}  // namespace

Status WriteSavePlan(Files& files, const std::string& table, const SavePlan& plan) {
  nlohmann::ordered_json json;
  json["delta"] = plan.delta;
  json["chain"] = ChainJson(plan.chain);
  return WriteWholeFile(files, PlanPath(files, table), JsonText(json));
}

StatusOr<SavePlan> ReadSavePlan(Files& files, const std::string& table) {
  const auto json = ReadJson(files, PlanPath(files, table));
  SOK_RETURN_IF_ERROR(json.status());
  JsonReader reader(PlanPath(files, table));
  SavePlan plan;
  plan.delta = reader.Bool(json.value(), "delta");
  plan.chain = ReadChain(&reader, reader.Member(json.value(), "chain"));
  if (!reader.ok()) return reader.status();
  return plan;
}

Status WriteShardNote(Files& files, const std::string& table, int shard, const ShardNote& note) {
  nlohmann::ordered_json json;
  json["table"] = TableJson(note.table);
  json["steps"] = note.steps;
  json["uses"] = note.uses;
  json["optimizer"] = OptimizerJson(note.optimizer);
  json["shard"] = ShardJson(note.shard);
  return WriteWholeFile(files, NotePath(files, table, shard), JsonText(json));
}

StatusOr<ShardNote> ReadShardNote(Files& files, const std::string& table, int shard) {
  const auto json = ReadJson(files, NotePath(files, table, shard));
  SOK_RETURN_IF_ERROR(json.status());
  JsonReader reader(NotePath(files, table, shard));
  ShardNote note;
  note.table = ReadTable(&reader, reader.Object(json.value(), "table"));
  note.steps = reader.Int(json.value(), "steps", 0);
  note.uses = reader.Int(json.value(), "uses", 0);
  note.optimizer = ReadOptimizer(&reader, reader.Member(json.value(), "optimizer"));
  note.shard = ReadShard(&reader, reader.Object(json.value(), "shard"), shard);
  if (!reader.ok()) return reader.status();
  return note;
}

Status RemoveNotes(Files& files, const std::string& table, int shards) {
  for (int shard = 0; shard < shards; ++shard) {
    SOK_RETURN_IF_ERROR(files.Remove(NotePath(files, table, shard)));
  }
  return files.Remove(PlanPath(files, table));
}

}  // namespace sok
