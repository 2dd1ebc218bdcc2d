#include "cc/checkpoint/save_notes.h"

#include "cc/checkpoint/manifest_json.h"

namespace sok {
namespace {

std::string PlanPath(const std::string& folder) { return folder + "/plan.json"; }
std::string NotePath(const std::string& folder, int shard) {
  return folder + "/" + ShardFolder(shard) + ".json";
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

Status WriteSavePlan(Files& files, const std::string& folder, const SavePlan& plan) {
  nlohmann::ordered_json json;
  json["delta"] = plan.delta;
  json["chain"] = ChainJson(plan.chain);
  return WriteWholeFile(files, PlanPath(folder), JsonText(json));
}

StatusOr<SavePlan> ReadSavePlan(Files& files, const std::string& folder) {
  const auto json = ReadJson(files, PlanPath(folder));
  SOK_RETURN_IF_ERROR(json.status());
  JsonReader reader(PlanPath(folder));
  SavePlan plan;
  plan.delta = reader.Bool(json.value(), "delta");
  plan.chain = ReadChain(&reader, reader.Member(json.value(), "chain"));
  if (!reader.ok()) return reader.status();
  return plan;
}

Status WriteShardNote(Files& files, const std::string& folder, int shard, const ShardNote& note) {
  nlohmann::ordered_json json;
  json["table"] = TableJson(note.table);
  json["steps"] = note.steps;
  json["uses"] = note.uses;
  json["optimizer"] = OptimizerJson(note.optimizer);
  json["shard"] = ShardJson(note.shard);
  return WriteWholeFile(files, NotePath(folder, shard), JsonText(json));
}

StatusOr<ShardNote> ReadShardNote(Files& files, const std::string& folder, int shard) {
  const auto json = ReadJson(files, NotePath(folder, shard));
  SOK_RETURN_IF_ERROR(json.status());
  JsonReader reader(NotePath(folder, shard));
  ShardNote note;
  note.table = ReadTable(&reader, reader.Object(json.value(), "table"));
  note.steps = reader.Int(json.value(), "steps", 0);
  note.uses = reader.Int(json.value(), "uses", 0);
  note.optimizer = ReadOptimizer(&reader, reader.Member(json.value(), "optimizer"));
  note.shard = ReadShard(&reader, reader.Object(json.value(), "shard"), shard);
  if (!reader.ok()) return reader.status();
  return note;
}

Status RemoveNotes(Files& files, const std::string& folder, int shards) {
  for (int shard = 0; shard < shards; ++shard) {
    SOK_RETURN_IF_ERROR(files.Remove(NotePath(folder, shard)));
  }
  return files.Remove(PlanPath(folder));
}

}  // namespace sok
