#include "safetensors_file.h"

#include <string.h>

#include "tensors/dtype.h"
#include "tensors/hashing.h"
#include "text/number_text.h"

namespace aoti_debug {
namespace {

constexpr size_t kElementAlignment = 64;  // as of torch's allocator, so that files can be mapped

constexpr std::string_view kExtension = ".safetensors", kReference = ".weight.json";
static_assert(kExtension.size() == kReference.size(), "a name that is cut is cut alike");

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("._,=@:+-", c) != nullptr;
}

std::string list_text(const int64_t* values, uint16_t count) {
  std::string text = "[";
  for (uint16_t i = 0; i < count; ++i) {
    if (i != 0) text += ',';
    append_signed(text, values[i]);
  }
  return text + "]";
}

// The shape in elements of the safetensors dtype: a complex number that it does not know is a pair of reals, and a byte
// with two numbers counts as two.
std::string stored_shape(const TensorMeta& meta) {
  const DType& type = dtype(meta.dtype);
  std::string shape = list_text(meta.sizes, meta.ndim);
  if (type.parts == 1) return shape;
  if (type.kind == Kind::kComplex || meta.ndim == 0) {
    shape.insert(shape.size() - 1, meta.ndim == 0 ? "2" : ",2");
    return shape;
  }
  int64_t sizes[AOTI_DEBUG_MAX_DIMS];
  memcpy(sizes, meta.sizes, meta.ndim * sizeof(int64_t));
  sizes[meta.ndim - 1] *= type.parts;
  return list_text(sizes, meta.ndim);
}

}  // namespace

std::string escaped(std::string_view name) {
  std::string text;
  text.reserve(name.size());
  for (const char c : name) {
    if (c != '\0' && is_plain(c)) {
      text += c;
    } else {
      constexpr char kDigits[] = "0123456789ABCDEF";
      text += '%';
      text += kDigits[(static_cast<unsigned char>(c) >> 4) & 15];
      text += kDigits[static_cast<unsigned char>(c) & 15];
    }
  }
  return text;
}

std::string file_name(const std::string& name, std::string_view extension) {
  if (name.size() + extension.size() <= kLongestFileName) return name + std::string(extension);
  const uint64_t sum = hash_bytes(reinterpret_cast<const uint8_t*>(name.data()), name.size(), 0);
  std::string text = name.substr(0, kLongestFileName - extension.size() - 9) + "~";
  append_hex(text, hash_finish(sum, name.size()), 8);
  return text + std::string(extension);
}

std::string TensorPath::reference() const {
  return directory + "/" + file.substr(0, file.size() - kExtension.size()) + std::string(kReference);
}

TensorPath tensor_path(const LaunchId& id, Phase phase, std::string_view kernel, std::string_view argument,
                       const TensorMeta& meta) {
  std::string number = std::to_string(id.launch);
  if (number.size() < 4) number.insert(0, 4 - number.size(), '0');
  const std::string kernel_name = escaped(kernel);
  const std::string name = std::string(phase == PHASE_BEFORE ? "before_launch_" : "after_launch_") + kernel_name + "_" +
                           escaped(argument) + "_" + device_name(meta.device_type, meta.device_index);
  TensorPath path;
  path.directory = "tensors/" + id.call_name() + "/" + file_name(number + "_" + kernel_name, "");
  path.file = file_name(name, kExtension);
  return path;
}

std::string safetensors_header(std::string_view key, const TensorMeta& meta) {
  const DType& type = dtype(meta.dtype);
  std::string json = "{\"__metadata__\":{\"dtype\":\"torch." + std::string(type.name) + "\"";
  json += ",\"format\":\"1\"";
  json += ",\"shape\":\"" + list_text(meta.sizes, meta.ndim) + "\"";
  json += ",\"storage_bytes\":\"" + std::to_string(meta.storage_bytes) + "\"";
  json += ",\"storage_offset\":\"" + std::to_string(meta.storage_offset) + "\"";
  json += ",\"strides\":\"" + list_text(meta.strides, meta.ndim) + "\"},";
  append_json(json, key);
  json += std::string(":{\"dtype\":\"") + type.safetensors + "\",\"shape\":" + stored_shape(meta);
  json += ",\"data_offsets\":[0," + std::to_string(logical_bytes(meta)) + "]}}";
  const size_t unpadded = sizeof(uint64_t) + json.size();
  json.append((kElementAlignment - unpadded % kElementAlignment) % kElementAlignment, ' ');
  const uint64_t length = json.size();
  std::string header(sizeof(length), '\0');
  memcpy(header.data(), &length, sizeof(length));
  return header + json;
}

}  // namespace aoti_debug
