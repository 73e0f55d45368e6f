// What is known about c10::ScalarType, c10::DeviceType and c10::Layout, by number: older headers lack some of the
// getters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace aoti_debug {

enum class Kind : uint8_t {
  kUnreadable,  // no rule how to read an element
  kPacked,      // bytes that can be saved, without values
  kBool,
  kInteger,
  kFloat,
  kComplex,
};

struct DType {
  const char* name;         // as torch writes it, without "torch."
  const char* safetensors;  // its name in a safetensors file; nullptr where it is not saved
  uint8_t bytes;            // of an element; 0 where it is unknown
  uint8_t parts;            // elements of the safetensors dtype an element
  Kind kind;
};

constexpr int32_t kFirstUnknownDType = 47;

enum ScalarType : int32_t {
  kUInt8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,
  kFloat32 = 6,
  kFloat64 = 7,
  kComplex32 = 8,
  kComplex64 = 9,
  kComplex128 = 10,
  kBoolean = 11,
  kBFloat16 = 15,
  kFloat8E5M2 = 23,
  kFloat8E4M3FN = 24,
  kFloat8E5M2FNUZ = 25,
  kFloat8E4M3FNUZ = 26,
  kUInt16 = 27,
  kUInt32 = 28,
  kUInt64 = 29,
  kFloat8E8M0FNU = 44,
  kFloat4E2M1FNx2 = 45,
  kBComplex32 = 46,
};

constexpr int32_t kDeviceCpu = 0;
constexpr int32_t kDeviceCuda = 1;
constexpr int32_t kDeviceMeta = 14;
constexpr int32_t kLayoutStrided = 0;

// The entry of a number that is not known has kind kUnreadable.
const DType& dtype(int32_t scalar_type);

bool is_quantized(int32_t scalar_type);

// "cpu", "cuda:0".
std::string device_name(int32_t device_type, int32_t device_index);

// "strided", "sparse_coo".
const char* layout_name(int32_t layout);

}  // namespace aoti_debug
