#include "cuda/programs/device_info.h"

#include <cuda_runtime.h>

#include <cstdio>

namespace sok {
namespace {

std::string VersionName(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string Gibibytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", static_cast<double>(bytes) / (int64_t{1} << 30));
  return text;
}

#ifdef SOK_CUDA_ON_HOST

void ReadHardware(int /*device*/, DeviceInfo* info) { info->is_host = true; }

#else

// 0 if the device does not report the attribute.
int Attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) cudaGetLastError();
  return value;
}

void ReadHardware(int device, DeviceInfo* info) {
  info->clock_khz = Attribute(cudaDevAttrClockRate, device);
  info->memory_clock_khz = Attribute(cudaDevAttrMemoryClockRate, device);
  info->memory_bus_bits = Attribute(cudaDevAttrGlobalMemoryBusWidth, device);
  info->cache_bytes = Attribute(cudaDevAttrL2CacheSize, device);
}

#endif

}  // namespace

std::string DeviceInfo::ToString() const {
  return StrCat(name, " (sm_", major, minor, ", ", multiprocessors, " multiprocessors, ",
                Gibibytes(free_bytes), " GiB free of ", Gibibytes(total_bytes), "), driver of CUDA ",
                VersionName(driver), ", runtime ", VersionName(runtime));
}

StatusOr<DeviceInfo> CurrentDevice() {
  DeviceInfo info;
  int devices = 0;
  int device = 0;
  cudaDeviceProp properties = {};
  size_t free_bytes = 0, total_bytes = 0;
  cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices == 0) error = cudaErrorNoDevice;
  if (error == cudaSuccess) error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, device);
  if (error == cudaSuccess) error = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (cudaDriverGetVersion(&info.driver) != cudaSuccess) info.driver = 0;
  if (cudaRuntimeGetVersion(&info.runtime) != cudaSuccess) info.runtime = 0;
  if (error != cudaSuccess) {
    cudaGetLastError();
    return FailedPrecondition("no CUDA device: ", cudaGetErrorString(error), " (driver of CUDA ",
                              VersionName(info.driver), ", 0.0 is none; this program needs ",
                              VersionName(info.runtime), ")");
  }
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  ReadHardware(device, &info);
  info.free_bytes = static_cast<int64_t>(free_bytes);
  info.total_bytes = static_cast<int64_t>(total_bytes);
  return info;
}

}  // namespace sok
