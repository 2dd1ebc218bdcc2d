#ifndef SOK_CC_ENGINE_ENGINE_OBJECT_H_
#define SOK_CC_ENGINE_ENGINE_OBJECT_H_

namespace sok {

class Engine;

// An object that an engine made: a table, a plan, working memory. Only that engine can use it, so callers
// check engine() before they pass it to an engine.
class EngineObject {
 public:
  explicit EngineObject(Engine* engine) : engine_(*engine) {}
  EngineObject(const EngineObject&) = delete;
  EngineObject& operator=(const EngineObject&) = delete;
  virtual ~EngineObject() = default;

  Engine& engine() const { return engine_; }

 private:
  Engine& engine_;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_ENGINE_OBJECT_H_
