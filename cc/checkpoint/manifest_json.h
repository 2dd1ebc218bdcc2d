// The parts of a table's texts as JSON, and back.
#ifndef SOK_CC_CHECKPOINT_MANIFEST_JSON_H_
#define SOK_CC_CHECKPOINT_MANIFEST_JSON_H_

#include <optional>
#include <vector>

#include "cc/checkpoint/json_reader.h"
#include "cc/checkpoint/manifest.h"

namespace sok {

nlohmann::ordered_json TableJson(const SavedTable& table);
nlohmann::ordered_json OptimizerJson(const std::optional<SavedOptimizer>& optimizer);
nlohmann::ordered_json ChainJson(const std::vector<ChainLink>& chain);
nlohmann::ordered_json ShardJson(const SavedShard& shard);

SavedTable ReadTable(JsonReader* reader, const nlohmann::json& json);
std::optional<SavedOptimizer> ReadOptimizer(JsonReader* reader, const nlohmann::json& json);
std::vector<ChainLink> ReadChain(JsonReader* reader, const nlohmann::json& json);
SavedShard ReadShard(JsonReader* reader, const nlohmann::json& json);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_MANIFEST_JSON_H_
