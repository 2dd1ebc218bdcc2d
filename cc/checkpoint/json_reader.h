#ifndef SOK_CC_CHECKPOINT_JSON_READER_H_
#define SOK_CC_CHECKPOINT_JSON_READER_H_

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "cc/base/status.h"

namespace sok {

// Strict access to untrusted JSON. A member that is missing or has the wrong type reads as zero, empty, null
// or the minimum, and sets status() to a DataLoss that names the file and the member. Only the first error is
// kept.
class JsonReader {
 public:
  using Json = nlohmann::json;

  explicit JsonReader(std::string path) : path_(std::move(path)) {}

  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  const std::string& path() const { return path_; }
  template <typename... Args>
  void Fail(const Args&... args) {
    if (ok()) status_ = DataLoss("'", path_, "' ", args...);
  }

  // The root of a text: an object, in UTF-8 without a byte order mark or a zero byte, of at most 32 levels.
  Json Parse(const std::string& text);

  // A required member; null if it is missing.
  const Json& Member(const Json& object, const char* name);
  const Json& Object(const Json& object, const char* name);
  const Json& Array(const Json& object, const char* name);
  std::string String(const Json& object, const char* name);
  bool Bool(const Json& object, const char* name);
  // A whole number in [min, max].
  int64_t Int(const Json& object, const char* name, int64_t min,
              int64_t max = std::numeric_limits<int64_t>::max());
  // Numbers that JSON cannot express are strings: "inf", "-inf", "nan".
  double Double(const Json& object, const char* name) { return AsDouble(Member(object, name), name); }
  float Float(const Json& object, const char* name) { return AsFloat(Member(object, name), name); }

  int64_t AsInt(const Json& value, const char* name, int64_t min, int64_t max);
  double AsDouble(const Json& value, const std::string& name);
  float AsFloat(const Json& value, const std::string& name);

 private:
  const std::string path_;
  Status status_;
};

// The shortest number that reads back as the same float or double, or the string of one that JSON cannot
// express.
nlohmann::ordered_json FloatJson(float value);
nlohmann::ordered_json DoubleJson(double value);

// An object with room for so many members: it would copy those that it has as it grows.
nlohmann::ordered_json JsonObject(size_t members);

// Text on one line; bytes that are not UTF-8 are replaced.
std::string JsonText(const nlohmann::ordered_json& value);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_JSON_READER_H_
