"""Files in and out: .pte and .ptd containers, and the Vulkan delegate inside. Every byte is checked before use."""
