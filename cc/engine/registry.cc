#include "cc/engine/registry.h"

#include <map>
#include <string>
#include <utility>

#include "cc/base/mutex.h"

namespace sok {
namespace {

struct Engines {
  Mutex mutex;
  std::map<std::string, std::unique_ptr<Engine>, std::less<>> by_name SOK_GUARDED_BY(mutex);
};

// Never destroyed: threads may use engines until the process ends.
Engines& AllEngines() {
  static auto* const engines = new Engines();
  return *engines;
}

}  // namespace

bool RegisterEngine(std::unique_ptr<Engine> engine) {
  Engines& all = AllEngines();
  const MutexLock lock(all.mutex);
  const std::string name = engine->name();
  return all.by_name.emplace(name, std::move(engine)).second;
}

StatusOr<Engine*> FindEngine(std::string_view name) {
  Engines& all = AllEngines();
  const MutexLock lock(all.mutex);
  const auto found = all.by_name.find(name);
  if (found != all.by_name.end()) return found->second.get();
  std::string names;
  for (const auto& [known, engine] : all.by_name) names += (names.empty() ? "'" : ", '") + known + "'";
  return InvalidArgument("There is no engine '", name, "'; known are ", names.empty() ? "none" : names);
}

}  // namespace sok
