#include "cc/checkpoint/json_reader.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace sok {
namespace {

const nlohmann::json& Null() {
  static const nlohmann::json null;
  return null;
}

// The maximum number of levels of lists and objects. A manifest has six. The limit comes first because the
// parser takes memory for each level.
constexpr int kMaxDepth = 32;

bool NestsTooDeep(const std::string& text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') ++i;
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if ((c == '[' || c == '{') && ++depth > kMaxDepth) return true;
    if (c == ']' || c == '}') --depth;
  }
  return false;
}

}  // namespace

JsonReader::Json JsonReader::Parse(const std::string& text) {
  // The parser would end the text at a zero byte, and skip a byte order mark.
  if (text.find('\0') != std::string::npos) Fail("is not JSON: it has a zero byte");
  if (text.compare(0, 3, "\xef\xbb\xbf") == 0) Fail("is not JSON: it begins with a byte order mark");
  if (NestsTooDeep(text)) Fail("is not valid: its JSON nests deeper than ", kMaxDepth, " levels");
  if (!ok()) return Json();
  Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) {
    Fail("is not a JSON object");
    return Json();
  }
  return root;
}

const JsonReader::Json& JsonReader::Member(const Json& object, const char* name) {
  if (!object.is_object()) {
    Fail("has no \"", name, "\"");
    return Null();
  }
  const auto found = object.find(name);
  if (found == object.end()) {
    Fail("has no \"", name, "\"");
    return Null();
  }
  return *found;
}

const JsonReader::Json& JsonReader::Object(const Json& object, const char* name) {
  const Json& value = Member(object, name);
  if (!value.is_object()) Fail("has a \"", name, "\" that is not an object");
  return value;
}

const JsonReader::Json& JsonReader::Array(const Json& object, const char* name) {
  const Json& value = Member(object, name);
  if (!value.is_array()) Fail("has a \"", name, "\" that is not a list");
  return value;
}

std::string JsonReader::String(const Json& object, const char* name) {
  const Json& value = Member(object, name);
  const std::string* text = value.get_ptr<const std::string*>();
  if (text != nullptr) return *text;
  Fail("has a \"", name, "\" that is not a string");
  return "";
}

bool JsonReader::Bool(const Json& object, const char* name) {
  const Json& value = Member(object, name);
  const bool* flag = value.get_ptr<const bool*>();
  if (flag != nullptr) return *flag;
  Fail("has a \"", name, "\" that is neither true nor false");
  return false;
}

int64_t JsonReader::Int(const Json& object, const char* name, int64_t min, int64_t max) {
  return AsInt(Member(object, name), name, min, max);
}

int64_t JsonReader::AsInt(const Json& value, const char* name, int64_t min, int64_t max) {
  int64_t number = 0;
  bool good = false;
  if (value.is_number_unsigned()) {
    const uint64_t big = value.get<uint64_t>();
    good = big <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    number = static_cast<int64_t>(good ? big : 0);
  } else if (value.is_number_integer()) {
    good = true;
    number = value.get<int64_t>();
  }
  if (good && number >= min && number <= max) return number;
  Fail("has a \"", name, "\" that is not a whole number in [", min, ", ", max, "]");
  return min;
}

double JsonReader::AsDouble(const Json& value, const std::string& name) {
  if (value.is_number()) return value.get<double>();
  const std::string* text = value.get_ptr<const std::string*>();
  if (text != nullptr && *text == "inf") return std::numeric_limits<double>::infinity();
  if (text != nullptr && *text == "-inf") return -std::numeric_limits<double>::infinity();
  if (text != nullptr && *text == "nan") return std::numeric_limits<double>::quiet_NaN();
  Fail("has a \"", name, "\" that is not a number");
  return 0.0;
}

float JsonReader::AsFloat(const Json& value, const std::string& name) {
  // The first number that does not round to a float. The shortest text of the largest float is between the
  // two.
  constexpr double kTooLarge = 0x1.ffffffp127;
  const double number = AsDouble(value, name);
  if (std::isfinite(number) && std::fabs(number) >= kTooLarge) {
    Fail("has a \"", name, "\" that is not a float");
    return 0.0f;
  }
  return static_cast<float>(number);
}

nlohmann::ordered_json DoubleJson(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

nlohmann::ordered_json FloatJson(float value) {
  if (!std::isfinite(value)) return DoubleJson(value);
  char text[32];
  for (int digits = 1; digits <= std::numeric_limits<float>::max_digits10; ++digits) {
    std::snprintf(text, sizeof(text), "%.*g", digits, static_cast<double>(value));
    if (std::strtof(text, nullptr) == value) break;
  }
  return std::strtod(text, nullptr);
}

nlohmann::ordered_json JsonObject(size_t members) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  object.get_ref<nlohmann::ordered_json::object_t&>().reserve(members);
  return object;
}

std::string JsonText(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace sok
